"""A reconfigurable intelligent surface (RIS) is one more path of a flat channel.

M elements each reflect with a phase theta_n set by a rule,

    h_k = sqrt(1 - b) d_k + sqrt(r) sum_n g_n exp(j theta_n) r_kn,

with the direct path d_k [A], of which a share b is blocked, the surface's path to the server g_n
[A], fixed over the trial, for both stand still, and the device's path to the surface r_kn, which
fades as the direct path's scattered part does; g and r are Rayleigh of unit power. The surface's
gain is part of h by intent: E|h|^2 = 1 - b + M r at random phases, and of the order of M^2 r at
aligned ones.

Phases are set anew in every coherence block, for all devices of the trial, by what is believed of
their paths (`csi`): of the direct one, sqrt(1 - b) d_k, and of each element's cascade, sqrt(r) g_n
r_kn, at each antenna. g_n is known, as it stands still, so the cascades of the A antennas are
estimates of one number, r_kn^ = g_n^H v_kn^ / |g_n|^2. The 1 + M paths are sounded one by one, the
other elements off, beside the pilots of the channel h_k that comes out. What the server tells the
surface is not counted. A phase that is off by phi costs a cascade the factor E exp(j phi) in the
mean amplitude, so the aligned power M^2 r its square.

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

from otafl.channels.base import Channel
from otafl.channels.fading import FADING, Fading
from otafl.core.settings import Decibels, Settings
from otafl.core.units import db_to_linear

ITERATIONS = 20


class RisSettings(Settings):
    """A reflecting surface is one more path, whose gain comes on top of E|h|^2 = 1."""

    elements: int = Field(ge=1)
    """reflecting elements, M"""
    reflected_db: Decibels = -20.0
    """power of one element's path, device to surface to server, relative to the direct path's, in
    dB"""
    blocked: float = Field(0.0, ge=0, le=1)
    """share of the direct path's power that an obstacle takes"""
    rule: Literal["random", "align_weakest", "align_sum"] = "align_weakest"
    """phases: random, or set for the device of the weakest direct path, or for the sum of all
    devices' channels, by what `csi` lets the server believe of the paths"""

    @property
    def num_sounded_paths(self) -> int:
        """Return the paths of a device that are sounded to set the surface: 1 + M, or none."""
        return 0 if self.rule == "random" else 1 + self.elements


class ReflectedChannel:
    """Add the surface's path to the direct one.

    channel: whose large-scale power gains the rules weigh devices by, and which is told what is
    believed of the paths. direct: fading [S, K, A, B] of the direct path. to_surface:
    [S, K, M, B].
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
            phasors = self._draw_random_phasors(round, blocks)
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
        """Return what is believed of direct paths d [S, K, A, B] and of those to the surface r
        [S, K, M, B]. Of direct paths that are blocked altogether nothing can be heard: the true
        ones then say for whom the surface is set, and in which phase, which makes no difference."""
        blocks = direct.shape[3]

        def paths(then: int) -> Tensor:
            """Return the paths that are sounded, [S, K, B, A, 1 + M]."""
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

    def _draw_random_phasors(self, round: int, blocks: int) -> Tensor:
        """Draw phasors [S, M, B], block by block the same in a longer payload."""
        phases = FADING / "ris" / "phases"
        draws = [
            self._streams.draw_uniform(phases / c, round, (1 << c, self._settings.elements))
            for c in range(blocks.bit_length())
        ]
        turns = torch.cat(draws, 1)[:, :blocks].mT
        return torch.polar(torch.ones_like(turns), 2.0 * math.pi * turns)


def align_to_weakest(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return the paths of the device whose direct path is the weakest in each block.

    Parameters
    ----------
    direct : [S, K, A, B].
    to_surface : [S, K, M, B].
    gain : [S, K].

    Returns
    -------
    Its direct path [S, A, B], and its path to the surface [S, M, B].
    """
    power = direct.abs().square().sum(2) * gain[..., None]
    index = power.argmin(1)[:, None, None]
    return direct.take_along_dim(index, 1)[:, 0], to_surface.take_along_dim(index, 1)[:, 0]


def align_to_sum(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of the devices' paths with their gain, shaped as in `align_to_weakest`."""
    root = gain.sqrt()[..., None, None]
    return (root * direct).sum(1), (root * to_surface).sum(1)


def align_phases(direct: Tensor, to_server: Tensor, to_surface: Tensor, unblocked: float) -> Tensor:
    """Choose phases for a large |y|, y = c d + sum_n v_n exp(j theta_n), v_n = g_n r_n.

    |y| is the largest |u^H y| over unit vectors u; so u = y / |y| and theta_n = -angle(u^H v_n), in
    turn, never lower it. They start from u = d / |d|: with one antenna one step is the optimum,
    every element in phase with the direct path.

    Parameters
    ----------
    direct : d [S, A, B].
    to_server : g [S, A, M].
    to_surface : r [S, M, B].
    unblocked : c.

    Returns
    -------
    exp(j theta) [S, M, B].
    """
    u = direct
    phasors = torch.ones_like(to_surface)
    for _ in range(1 if direct.shape[1] == 1 else ITERATIONS):
        along = torch.einsum("sab,sam,smb->smb", u.conj(), to_server, to_surface)
        phasors = torch.sgn(along.conj())
        u = unblocked * direct + torch.einsum("sam,smb->sab", to_server, phasors * to_surface)
    return phasors
