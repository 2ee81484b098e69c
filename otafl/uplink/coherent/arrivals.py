"""Let devices' OFDM symbols arrive: over paths of unlike delay, late, on a carrier that is off.

A path of a device that is D samples late, delays of the path and of the device together, turns
sub-carrier i by exp(-j 2 pi f_i D / n), exactly, wherever the receiver's window of n samples holds
the OFDM symbol that it is about: f_i = i - (n - 1) / 2, so that the band's centre does not turn.
That is so from sample D - prefix of the window on; the samples before are those of OFDM symbols
before. No sample is interpolated: between samples a symbol is what its sub-carriers say, without a
pulse's tails. A carrier offset of e sub-carrier spacings turns sample j of OFDM symbol m by
exp(j 2 pi e (m (n + prefix) + j) / n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.channels.ofdm import frequency_response, rotations
from otafl.core.contracts import ChannelState, Cohort
from otafl.uplink.coherent.ofdm_grid import Grid

SAMPLE = 1e-3
"""Part of a sample that is no delay, but rounding."""


def baseband(carriers: int, device: torch.device) -> Tensor:
    """Return the frequencies [n] of the sub-carriers' samples in spacings, float64: whole ones, as
    prefixes need."""
    return torch.arange(carriers, dtype=torch.float64, device=device) - carriers // 2


def list_carrier_offsets(carriers: int, device: torch.device) -> Tensor:
    """Return the frequencies f_i [n] of the sub-carriers about the band's centre, in spacings."""
    step = torch.arange(carriers, dtype=torch.float64, device=device)
    return step - (carriers - 1) / 2.0


@dataclass(frozen=True)
class Beyond:
    """Hold what paths that are late bring to a sample of the window. ago: how many OFDM symbols
    before its own their symbol is. response: [N, A, n], what they multiply the sub-carriers
    with."""

    sample: int
    ago: int
    response: Tensor


class Arrivals:
    """Say how rows reach the antennas.

    Parameters
    ----------
    h : [S, K, A, B * F] of the channel's cells, large-scale gain included.
    state : of the channel, whose paths count where they are known.
    cohort : the N rows.
    grid : of the slot.
    bandwidth_hz : [S], samples a second.
    late : [N] samples that a row is late, None: none is.
    phase : [N] radians left after pre-compensation, None: none are.

    Attributes
    ----------
    ago : how many OFDM symbols before its own a path may bring.
    """

    def __init__(
        self,
        h: Tensor,
        state: ChannelState,
        cohort: Cohort,
        grid: Grid,
        bandwidth_hz: Tensor,
        late: Tensor | None,
        phase: Tensor | None,
    ) -> None:
        self._h, self._cell, self._grid = h, cohort.flat_index, grid
        self._groups, self._late = state.h.shape[4], late
        self._frequency = list_carrier_offsets(grid.carriers, h.device) / grid.carriers
        self._turn = None
        if late is not None:
            self._turn = rotations(-late.double()[:, None] * self._frequency, h.real.dtype)
        if phase is not None:
            turned = torch.polar(torch.ones_like(phase), phase)[:, None]
            self._turn = turned if self._turn is None else self._turn * turned
        self._a = None
        if state.paths_fn is not None:
            paths = state.paths_fn(len(grid.starts) - 1)
            self._a = self._rows(paths.a * state.gain.sqrt()[:, :, None, None, None])
            delay = paths.delay_s.expand(-1, h.shape[1], -1, -1)
            self._delay = self._rows(delay) * bandwidth_hz[cohort.trial].double()[:, None, None]
            self._rotation: tuple[int, Tensor] | None = None
        self._missing = self._compute_lateness()  # [N, B or 1, L]
        self._most = 0 if self._missing is None else int(self._missing.amax())
        self.ago = -(-self._most // (grid.carriers + grid.prefix))

    def _compute_lateness(self) -> Tensor | None:
        """Return how many samples of its own OFDM symbol each path misses; None where no delay is
        known."""
        delay = None
        if self._a is not None:
            delay = self._delay * (self._a != 0).any(1)
        if self._late is not None:
            late = self._late.double()[:, None, None]
            delay = late if delay is None else delay + late
        if delay is None or delay.numel() == 0:
            return None
        return missing_samples(delay, self._grid.prefix)

    def _rows(self, table: Tensor) -> Tensor:
        """Take a table [S, K, ...] at the rows, [N, ...]."""
        return table.flatten(0, 1).index_select(0, self._cell)

    def _rotations(self, block: int) -> Tensor:
        """Return exp(-j 2 pi f_i tau) [N, L, n] of the paths of a block, once where they last."""
        at = min(block, self._delay.shape[1] - 1)
        if self._rotation is None or self._rotation[0] != at:
            cycles = -self._delay[:, at, :, None] * self._frequency
            self._rotation = at, rotations(cycles, self._h.real.dtype)
        return self._rotation[1]

    def _rotate(self, response: Tensor) -> Tensor:
        return response if self._turn is None else response * self._turn[:, None]

    def response(self, block: int) -> Tensor:
        """Return what each sub-carrier of a row is multiplied with in a coherence block, [N, A, n],
        as if all of its paths were within the prefix."""
        if self._a is not None:
            rotation = self._rotations(block)[:, None]
            return self._rotate(frequency_response(self._a[:, :, block], rotation))
        groups = self._h[..., block * self._groups : (block + 1) * self._groups]
        width = self._grid.carriers // self._groups
        return self._rotate(self._rows(groups).repeat_interleave(width, 2))

    def list_beyond(self, block: int) -> list[Beyond]:
        """Return what the paths beyond the prefix bring in a coherence block, sample by sample."""
        if self._missing is None:
            return []
        missing = self._missing[:, min(block, self._missing.shape[1] - 1)]
        n, period = self._grid.carriers, self._grid.carriers + self._grid.prefix
        return [
            Beyond(
                sample,
                ago,
                self._compute_late_response(block, (missing - sample).div(period).ceil() == ago),
            )
            for ago in range(1, self.ago + 1)
            for sample in range(min(n, self._most - (ago - 1) * period))
        ]

    def _compute_late_response(self, block: int, some: Tensor) -> Tensor:
        """Return what some of the paths [N, L] multiply the sub-carriers with, [N, A, n]."""
        if self._a is None:
            return self.response(block) * some[:, None]
        paths = self._a[:, :, block] * some[:, None]
        return self._rotate(torch.bmm(paths, self._rotations(block)))


def missing_samples(late: Tensor, prefix: int) -> Tensor:
    """Return how many samples of the window are of the OFDM symbol before, of paths that are so
    many samples late."""
    return (late - (prefix + SAMPLE)).ceil().clamp_min(0.0)


def differences(beyond: list[Beyond], sent: Tensor, earlier: Tensor, prefix: int) -> Tensor:
    """Return what the first samples of each window differ by from the OFDM symbol's own.

    Parameters
    ----------
    beyond : of J samples.
    sent : [N, M, n] sub-carriers of the OFDM symbols.
    earlier : [N, H, n] of those before them, as many as some path is late.
    prefix : samples.

    Returns
    -------
    [N, A, M, J]
    """
    symbols, carriers = sent.shape[1:]
    cycles = baseband(carriers, sent.device) / carriers
    every = torch.cat([earlier, sent], 1)
    columns: dict[int, Tensor] = {}
    for one in beyond:
        first = earlier.shape[1] - one.ago
        there = every[:, first : first + symbols]
        wrong = there * rotations(cycles * prefix * one.ago, sent.real.dtype) - sent
        wave = rotations(cycles * one.sample, sent.real.dtype) / math.sqrt(carriers)
        column = torch.bmm(one.response * wave, wrong.mT)
        columns[one.sample] = columns[one.sample] + column if one.sample in columns else column
    return torch.stack([columns[sample] for sample in range(len(columns))], -1)


def carrier_turns(offset: Tensor, first: int, stop: int, grid: Grid) -> Tensor:
    """Return exp(j 2 pi e (m (n + prefix) + j) / n) [N, 1, M, n] complex128 of OFDM symbols first
    .. stop, of offsets e [N]."""
    n, device = grid.carriers, offset.device
    cycles = offset.double()[:, None]
    symbol = torch.arange(first, stop, dtype=torch.float64, device=device)
    sample = torch.arange(n, dtype=torch.float64, device=device)
    by_symbol = rotations(cycles * symbol * (1.0 + grid.prefix / n), torch.float64)
    by_sample = rotations(cycles * sample / n, torch.float64)
    return (by_symbol[:, :, None] * by_sample[:, None])[:, None]
