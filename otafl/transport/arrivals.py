"""Let devices' OFDM symbols arrive: over paths of unlike delay, late, on a carrier that is off.

A path of a device that is D samples late, delays of the path and of the device together, turns
sub-carrier i by exp(-j 2 pi f_i D / n), exactly, wherever the receiver's window of n samples holds
the OFDM symbol that it is about: f_i = i - (n - 1) / 2, so that the band's centre does not turn.
That is so from sample D - prefix of the window on; the samples before are those of the OFDM symbol
before. No sample is interpolated: between samples a symbol is what its sub-carriers say, without a
pulse's tails. A carrier offset of e sub-carrier spacings turns sample j of OFDM symbol m by
exp(j 2 pi e (m (n + prefix) + j) / n).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.channels.ofdm import frequency_response, rotations
from otafl.core.contracts import ChannelState, Cohort
from otafl.core.errors import UserError
from otafl.transport.ofdm_grid import Grid

SAMPLE = 1e-3
"""Part of a sample that is no delay, but rounding."""


def baseband(carriers: int, device: torch.device) -> Tensor:
    """Return the frequencies [n] of the sub-carriers' samples in spacings, float64: whole ones, as
    prefixes need."""
    return torch.arange(carriers, dtype=torch.float64, device=device) - carriers // 2


def about_centre(carriers: int, device: torch.device) -> Tensor:
    """Return the frequencies f_i [n] of the sub-carriers about the band's centre, in spacings."""
    step = torch.arange(carriers, dtype=torch.float64, device=device)
    return step - (carriers - 1) / 2.0


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
        self._h, self._cell, self._grid = h, cohort.cell, grid
        self._groups, self._late = state.h.shape[4], late
        self._frequency = about_centre(grid.carriers, h.device) / grid.carriers
        self._turn = None
        if late is not None:
            self._turn = rotations(-late.double()[:, None] * self._frequency, h.real.dtype)
        if phase is not None:
            turned = torch.polar(torch.ones_like(phase), phase)[:, None]
            self._turn = turned if self._turn is None else self._turn * turned
        self._a = None
        if state.paths is not None:
            paths = state.paths(len(grid.starts) - 1)
            self._a = self._rows(paths.a * state.gain.sqrt()[:, :, None, None, None])
            delay = paths.delay_s.expand(-1, h.shape[1], -1, -1)
            self._delay = self._rows(delay) * bandwidth_hz[cohort.trial].double()[:, None, None]
            self._rotation: tuple[int, Tensor] | None = None

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

    def _turned(self, response: Tensor) -> Tensor:
        return response if self._turn is None else response * self._turn[:, None]

    def response(self, block: int) -> Tensor:
        """Return what each sub-carrier of a row is multiplied with in a coherence block, [N, A, n],
        as if all of its paths were within the prefix."""
        if self._a is not None:
            rotation = self._rotations(block)[:, None]
            return self._turned(frequency_response(self._a[:, :, block], rotation))
        groups = self._h[..., block * self._groups : (block + 1) * self._groups]
        width = self._grid.carriers // self._groups
        return self._turned(self._rows(groups).repeat_interleave(width, 2))

    def beyond(self, block: int) -> list[Tensor]:
        """Return of each sample j that some path's OFDM symbol has not reached yet what these paths
        multiply the sub-carriers with, [N, A, n].

        Raises UserError where a path is later than a whole OFDM symbol.
        """
        if self._a is None and self._late is None:
            return []
        if self._a is None:
            assert self._late is not None
            own = self.response(block)
            missing = missing_samples(self._late.double()[:, None], self._grid.prefix)
            return [own * (missing > j)[:, None] for j in range(self._most(missing))]
        a = self._a[:, :, block]
        there = a.abs().amax(1) > 0
        delay = self._delay[:, min(block, self._delay.shape[1] - 1)]
        if self._late is not None:
            delay = delay + self._late.double()[:, None]
        missing = missing_samples(delay * there, self._grid.prefix)
        rotation, beyond = self._rotations(block), []
        for j in range(self._most(missing)):
            outside = a * (missing > j)[:, None]
            beyond.append(self._turned(torch.bmm(outside, rotation)))
        return beyond

    def _most(self, missing: Tensor) -> int:
        """Return the most samples missing of any path."""
        most = int(missing.amax()) if missing.numel() else 0
        if most > self._grid.carriers:
            raise UserError(
                f"transport.subcarriers: {self._grid.carriers}, but a path comes "
                f"{most + self._grid.prefix} samples late, later than an OFDM symbol and its "
                f"prefix of {self._grid.prefix}; more sub-carriers would do, or a longer prefix"
            )
        return most


def missing_samples(late: Tensor, prefix: int) -> Tensor:
    """Return how many samples of the window are of the OFDM symbol before, of paths that are so
    many samples late."""
    return (late - (prefix + SAMPLE)).ceil().clamp_min(0.0)


def too_early(beyond: list[Tensor], now: Tensor, before: Tensor, prefix: int) -> Tensor:
    """Return what the first samples of each window differ by from the OFDM symbol's own, as paths
    beyond the prefix bring the symbol before.

    Parameters
    ----------
    beyond : J of [N, A, n], as of `Arrivals.beyond`.
    now, before : [N, M, n] sub-carriers of the OFDM symbols and of those before them.
    prefix : samples.

    Returns
    -------
    [N, A, M, J]
    """
    carriers = now.shape[-1]
    cycles = baseband(carriers, now.device) / carriers
    wrong = before * rotations(cycles * prefix, now.real.dtype) - now
    columns = []
    for j, response in enumerate(beyond):
        wave = rotations(cycles * j, now.real.dtype) / math.sqrt(carriers)
        columns.append(torch.bmm(response * wave, wrong.mT))
    return torch.stack(columns, -1)


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
