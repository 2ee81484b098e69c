"""Path that a reconfigurable intelligent surface (RIS) adds to a flat channel.

Each of M elements reflects with a phase theta_n that a rule sets:

    h_k = sqrt(1 - b) d_k + sqrt(r) sum_n g_n exp(j theta_n) r_kn

A fraction b of the power of the direct path d_k [A] is blocked. The path g_n [A] from the surface
to the server is constant during a trial, because neither moves. The path r_kn from the device to
the surface fades as the scattered part of the direct path. Both g and r are Rayleigh with unit
power. The surface's gain is intentionally part of h: E|h|^2 = 1 - b + M r with random phases, and
of the order of M^2 r with aligned ones.

Phases are set in every coherence block, for all devices of the trial, by the estimates of their
paths (`csi`): the direct path, sqrt(1 - b) d_k, and each element's cascade, sqrt(r) g_n r_kn, at
each antenna. Because g_n is constant, it is known, and the cascades of the A antennas are estimates
of one number, r_kn^ = g_n^H v_kn^ / |g_n|^2. The 1 + M paths are sounded one by one, with the other
elements off, in addition to the pilots of the resulting channel h_k. Feedback from the server to
the surface is not counted. A phase error phi multiplies the mean amplitude of a cascade by E exp(j
phi), and so the aligned power M^2 r by its square.

References
----------
Mishra, Johansson 2019, "Channel Estimation and Low-Complexity Beamforming Design for Passive
    Intelligent Surface Assisted MISO Wireless Energy Transfer", for sounding element by element.
Badiu, Coon 2020, "Communication Through a Large Reflecting Surface With Phase Errors", IEEE
    Wireless Communications Letters 9(2).
Wu, Zhang 2019, "Intelligent Reflecting Surface Enhanced Wireless Network via Joint Active and
    Passive Beamforming", IEEE Transactions on Wireless Communications 18(11).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.channels.base import Channel, FadingSettings
from otafl.channels.fading import FADING, Fading
from otafl.core.settings import Decibels, Settings
from otafl.core.units import db_to_linear

ITERATIONS = 20


class RisSettings(Settings):
    """Reflecting surface, one more path whose gain is added to E|h|^2 = 1."""

    elements: int = Field(ge=1)
    """reflecting elements, M"""
    reflected_db: Decibels = -20.0
    """power of one element's path, device to surface to server, relative to the direct path's, in
    dB"""
    blocked: float = Field(0.0, ge=0, le=1)
    """fraction of the direct path's power that an obstacle blocks"""
    rule: Literal["random", "align_weakest", "align_sum"] = "align_weakest"
    """choice of the phases: random, or set for the device with the weakest direct path, or for the
    sum of all devices' channels, by the server's estimates of the paths (`csi`)"""

    @property
    def num_sounded_paths(self) -> int:
        """Paths of a device that are sounded to set the surface: 1 + M, or none."""
        return 0 if self.rule == "random" else 1 + self.elements


class FlatFadingSettings(FadingSettings):
    """Common keys of the sections of flat fading channels."""

    ris: RisSettings | None = None
    """reflecting surface; none by default"""


class ReflectedChannel:
    """Fading of the direct path and of the path over the surface.

    Parameters
    ----------
    channel : Channel
        The channel. Its large-scale gains weight the devices in the rules, and it estimates the
        paths.
    direct : Fading
        Fading [S, K, A, B] of the direct path.
    to_surface : Fading
        Fading [S, K, M, B] of the path from the device to the surface.
    """

    def __init__(self, channel: Channel, direct: Fading, to_surface: Fading) -> None:
        self._channel, self._direct, self._to_surface = channel, direct, to_surface
        settings: RisSettings = channel.settings.ris
        self._settings, self._streams = settings, channel.streams
        shape = (channel.settings.antennas, settings.elements, 2)
        draw = self._streams.draw_normal(FADING / "ris" / "server", 0, shape)
        power = db_to_linear(settings.reflected_db)
        self._to_server = torch.view_as_complex(draw.contiguous()) * math.sqrt(power / 2.0)
        self._unblocked = math.sqrt(1.0 - settings.blocked)

    def draw(self, round: int, blocks: int, among: Tensor | None = None) -> Tensor:
        """Draw h [S, K, A, B]; the surface's phases depend on all devices."""
        direct = self._direct.draw(round, blocks)
        to_surface = self._to_surface.draw(round, blocks)  # [S, K, M, B]
        if self._settings.rule == "random":
            phases, elements = FADING / "ris" / "phases", self._settings.elements
            draws = [  # equal blocks in a longer payload
                self._streams.draw_uniform(phases / c, round, (1 << c, elements))
                for c in range(blocks.bit_length())
            ]
            turns = torch.cat(draws, 1)[:, :blocks].mT
            phasors = torch.polar(torch.ones_like(turns), 2.0 * math.pi * turns)
        else:
            choose = align_to_weakest if self._settings.rule == "align_weakest" else align_to_sum
            believed = self._estimate_paths(direct, to_surface, round)
            d, r = choose(*believed, self._channel.budget.gain)
            phasors = align_phases(d, self._to_server, r, self._unblocked)
        reflected = torch.einsum("sam,smb,skmb->skab", self._to_server, phasors, to_surface)
        return self._unblocked * direct + reflected

    def _estimate_paths(
        self, direct: Tensor, to_surface: Tensor, round: int
    ) -> tuple[Tensor, Tensor]:
        """Return the estimates of direct paths [S, K, A, B] and paths to the surface [S, K, M, B].

        A direct path that is blocked completely cannot be estimated. The true one then chooses the
        device and the phase for which the surface is set, which has no effect.
        """
        blocks = direct.shape[3]

        def paths(then: int) -> Tensor:
            """Return the sounded paths, [S, K, B, A, 1 + M]."""
            d, r = direct, to_surface
            if then != round:
                d, r = self._direct.draw(then, blocks), self._to_surface.draw(then, blocks)
            cascade = torch.einsum("sam,skmb->skbam", self._to_server, r)
            return torch.cat([self._unblocked * d.movedim(3, 2)[..., None], cascade], -1)

        known = self._channel.estimate_fn(paths, self._channel.budget.gain, round)
        if known is None:
            return direct, to_surface
        if self._unblocked > 0:
            direct = known[..., 0].movedim(2, 3) / self._unblocked
        along = torch.einsum("sam,skbam->skmb", self._to_server.conj(), known[..., 1:])
        return direct, along / self._to_server.abs().square().sum(1)[:, None, :, None]


def align_to_weakest(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return the paths of the device with the weakest direct path in each block.

    Parameters
    ----------
    direct : Tensor, complex [S, K, A, B]
        Direct paths.
    to_surface : Tensor, complex [S, K, M, B]
        Paths to the surface.
    gain : Tensor, float [S, K]
        Large-scale gains.

    Returns
    -------
    tuple of Tensor [S, A, B] and Tensor [S, M, B]
        The device's direct path, and its path to the surface.
    """
    power = direct.abs().square().sum(2) * gain[..., None]
    index = power.argmin(1)[:, None, None]
    return direct.take_along_dim(index, 1)[:, 0], to_surface.take_along_dim(index, 1)[:, 0]


def align_to_sum(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of the devices' paths with their gains, shaped as in `align_to_weakest`."""
    root = gain.sqrt()[..., None, None]
    return (root * direct).sum(1), (root * to_surface).sum(1)


def align_phases(direct: Tensor, to_server: Tensor, to_surface: Tensor, unblocked: float) -> Tensor:
    r"""Choose the phases of the elements that maximise the received amplitude |y|.

    Parameters
    ----------
    direct : Tensor, complex [S, A, B]
        Direct path d.
    to_server : Tensor, complex [S, A, M]
        Paths g from the elements to the server.
    to_surface : Tensor, complex [S, M, B]
        Paths r to the elements.
    unblocked : float
        Amplitude c of the direct path.

    Returns
    -------
    Tensor, complex [S, M, B]
        Phasors exp(j theta).

    Notes
    -----
    The received signal is

    .. math::

        y = c d + \sum_n v_n e^{j \theta_n}, \quad v_n = g_n r_n

    |y| is the largest |u^H y| over unit vectors u. Alternating u = y / |y| and theta_n = -angle(u^H
    v_n) never decreases it, as in Wu, Zhang 2019. The iteration starts from u = d / |d|. With one
    antenna, one step is the optimum: every element is in phase with the direct path.
    """
    u = direct
    phasors = torch.ones_like(to_surface)
    for _ in range(1 if direct.shape[1] == 1 else ITERATIONS):
        along = torch.einsum("sab,sam,smb->smb", u.conj(), to_server, to_surface)
        phasors = torch.sgn(along.conj())
        u = unblocked * direct + torch.einsum("sam,smb->sab", to_server, phasors * to_surface)
    return phasors
