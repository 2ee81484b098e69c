"""A reconfigurable intelligent surface (RIS) as one more path: M elements that each reflect with a
phase theta_n set by a rule (Wu and Zhang, "Intelligent Reflecting Surface Enhanced Wireless Network
via Joint Active and Passive Beamforming", IEEE Transactions on Wireless Communications 18(11),
2019),

    h_k = sqrt(1 - b) d_k + sqrt(r) sum_n g_n exp(j theta_n) r_kn,

with the direct path d_k [A], of which a share b is blocked, the surface's path to the server g_n
[A], fixed over the trial, for both stand still, and the device's path to the surface r_kn, which
fades as the direct path's scattered part does; g and r are Rayleigh of unit power. The surface's
gain is part of h by intent: E|h|^2 = 1 - b + M r at random phases, and of the order of M^2 r at
aligned ones. Phases are set anew in every coherence block from the true channel, of all devices
of the trial.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.config import FlatFadingConfig, RisConfig
from otafl.channels.scattering import Fading, scattering
from otafl.core.contracts import LinkBudget
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear

ITERATIONS = 20


def with_surface(
    direct: Fading,
    config: FlatFadingConfig,
    budget: LinkBudget,
    devices: int,
    streams: Streams,
) -> Fading:
    """The direct path, and the surface's where the section has one."""
    if config.ris is None:
        return direct
    to_surface = scattering(
        config, budget, devices, config.ris.elements, 0.0, streams, "fading/ris"
    )
    return _Reflected(direct, to_surface, config.ris, config.antennas, budget.gain, streams)


class _Reflected:
    def __init__(
        self,
        direct: Fading,
        to_surface: Fading,
        config: RisConfig,
        antennas: int,
        gain: Tensor,
        streams: Streams,
    ) -> None:
        self._direct, self._to_surface = direct, to_surface
        self._config, self._streams = config, streams
        draw = streams.normal("fading/ris/server", 0, (antennas, config.elements, 2))
        power = db_to_linear(config.reflected_db)
        self._to_server = torch.view_as_complex(draw.contiguous()) * math.sqrt(power / 2.0)
        self._unblocked = math.sqrt(1.0 - config.blocked)
        self._gain = gain

    def draw(self, round: int, blocks: int) -> Tensor:
        """[S, K, A, B]."""
        direct = self._direct.draw(round, blocks)
        to_surface = self._to_surface.draw(round, blocks)  # [S, K, M, B]
        if self._config.rule == "random":
            phasors = self._random(round, blocks)
        else:
            choose = weakest if self._config.rule == "align_weakest" else summed
            d, r = choose(direct, to_surface, self._gain)
            phasors = aligned(d, self._to_server, r, self._unblocked)
        reflected = torch.einsum("sam,smb,skmb->skab", self._to_server, phasors, to_surface)
        return self._unblocked * direct + reflected

    def _random(self, round: int, blocks: int) -> Tensor:
        """[S, M, B], block by block the same in a longer payload."""
        draws = [
            self._streams.uniform(f"fading/ris/phases/{c}", round, (1 << c, self._config.elements))
            for c in range(blocks.bit_length())
        ]
        turns = torch.cat(draws, 1)[:, :blocks].mT
        return torch.polar(torch.ones_like(turns), 2.0 * math.pi * turns)


def weakest(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Direct path [S, A, B] and path to the surface [S, M, B] of the device whose direct path is
    the weakest in each block; direct [S, K, A, B], to_surface [S, K, M, B], gain [S, K]."""
    power = direct.abs().square().sum(2) * gain[..., None]
    index = power.argmin(1)[:, None, None]
    return direct.take_along_dim(index, 1)[:, 0], to_surface.take_along_dim(index, 1)[:, 0]


def summed(direct: Tensor, to_surface: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """The same of the sum of the devices' channels, large-scale gain included."""
    root = gain.sqrt()[..., None, None]
    return (root * direct).sum(1), (root * to_surface).sum(1)


def aligned(direct: Tensor, to_server: Tensor, to_surface: Tensor, unblocked: float) -> Tensor:
    """exp(j theta) [S, M, B] for a large |y|, y = c d + sum_n v_n exp(j theta_n), v_n = g_n r_n.

    |y| is the largest |u^H y| over unit vectors u; so u = y / |y| and theta_n = -angle(u^H v_n), in
    turn, never lower it. They start from u = d / |d|: with one antenna one step is the optimum,
    every element in phase with the direct path.

    direct: d [S, A, B]. to_server: g [S, A, M]. to_surface: r [S, M, B]. unblocked: c.
    """
    u = direct
    phasors = torch.ones_like(to_surface)
    for _ in range(1 if direct.shape[1] == 1 else ITERATIONS):
        along = torch.einsum("sab,sam,smb->smb", u.conj(), to_server, to_surface)
        phasors = torch.sgn(along.conj())
        u = unblocked * direct + torch.einsum("sam,smb->sab", to_server, phasors * to_surface)
    return phasors
