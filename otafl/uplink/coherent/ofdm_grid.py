"""OFDM symbols of a slot: its channel uses on n sub-carriers at a time, each symbol with a prefix.

The cells of the channel are those of single symbols (`Slot.cell_stops`): each of F
sub-carrier groups has n / F neighbouring sub-carriers, which are filled one OFDM symbol after the
other. A coherence block begins with a new OFDM symbol; the remaining sub-carriers of its last one
are empty.

Arrival of the devices' OFDM symbols: several paths, delays and carrier frequency offsets.

If a path of a device arrives D samples late, delay of the path and of the device together, it
multiplies sub-carrier i by

    exp(-j 2 pi f_i D / n),   f_i = i - (n - 1) / 2.

The phase at the band's centre does not change. This holds exactly where the receiver's window of n
samples contains the OFDM symbol to be detected, which is from sample D - prefix of the window on.
The samples before it belong to earlier OFDM symbols. No sample is interpolated: between samples a
symbol follows from its sub-carriers, without the tails of a pulse. A carrier offset of e
sub-carrier spacings multiplies sample j of OFDM symbol m by exp(j 2 pi e (m (n + prefix) + j) / n).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.channels.ofdm import frequency_response, rotations
from otafl.core.contracts import ChannelState, Cohort
from otafl.core.tensors import get_constant


@dataclass(frozen=True)
class Grid:
    """Positions of channel uses on OFDM symbols and sub-carriers.

    Parameters
    ----------
    carriers : int
        Number of sub-carriers, n.
    prefix : int
        Samples before each OFDM symbol.
    place : Tensor, int64 [L]
        OFDM symbol times n plus sub-carrier, for each channel use of the slot.
    starts : tuple of int
        First OFDM symbol of each coherence block, and the number of all.
    """

    carriers: int
    prefix: int
    place: Tensor
    starts: tuple[int, ...]

    @property
    def symbols(self) -> int:
        """Number of OFDM symbols."""
        return self.starts[-1]

    @property
    def samples(self) -> int:
        """Samples of the slot, with prefixes."""
        return self.symbols * (self.carriers + self.prefix)

    @property
    def repeats(self) -> float:
        """Samples of an OFDM symbol over those without its prefix."""
        return 1.0 + self.prefix / self.carriers

    def sources(self, place: Tensor) -> Tensor:
        """Return the group's symbol on each sub-carrier, [symbols, n] int64; -1 for none."""
        count = len(place)
        found = place.new_full((self.symbols * self.carriers,), -1)
        found[place] = torch.arange(count, device=place.device)
        return found.view(self.symbols, self.carriers)


def lay_out(
    stops: Sequence[int], groups: int, carriers: int, prefix: int, device: torch.device
) -> Grid:
    """Lay out the channel uses of a slot on OFDM symbols.

    Parameters
    ----------
    stops : sequence of int
        Channel use after which each cell of the channel ends, flattened over (B, F).
    groups : int
        Number of sub-carrier groups, F, which divides `carriers`.
    carriers, prefix : int
        As in `Grid`.
    device : torch.device
        Device of the tensors.

    Returns
    -------
    Grid
        The positions.
    """
    width = carriers // groups
    firsts = (0, *stops[:-1])
    lengths = tuple(stop - first for first, stop in zip(firsts, stops, strict=True))
    longest = [max(lengths[at : at + groups]) for at in range(0, len(lengths), groups)]
    starts = tuple(itertools.accumulate((-(-one // width) for one in longest), initial=0))

    def table(values: Sequence[int]) -> Tensor:
        return get_constant(tuple(values), torch.int64, device)

    use = torch.arange(stops[-1], device=device)
    cell = torch.repeat_interleave(table(lengths), output_size=stops[-1])
    nth = use - table(firsts)[cell]
    symbol = table(starts)[cell // groups] + nth // width
    place = symbol * carriers + cell % groups * width + nth % width
    return Grid(carriers, prefix, place, starts)


SAMPLE = 1e-3
"""Fraction of a sample below which a delay counts as rounding error."""


Late = tuple[int, int, Tensor]
"""Contribution of paths beyond the prefix to one sample of the window: number of the sample, number
of OFDM symbols by which the paths' symbol is earlier, and the factors of the sub-carriers, complex
[N, A, n]."""


class Arrivals:
    """Frequency responses with which the rows reach the antennas.

    Parameters
    ----------
    h : Tensor, complex [S, K, A, B * F]
        Channels of all cells, with large-scale gain.
    state : ChannelState
        The channel, whose paths are used if it has any.
    cohort : Cohort
        The N rows.
    grid : Grid
        OFDM symbols of the slot.
    bandwidth_hz : Tensor [S]
        Samples per second.
    delay : Tensor, float [N], or None
        Delay of each row in samples; None without delays.
    phase : Tensor, float [N], or None
        Residual phase of each row in radians; None without residual phases.

    Attributes
    ----------
    ago : int
        Largest number of OFDM symbols by which a path's symbol is earlier.
    """

    def __init__(
        self,
        h: Tensor,
        state: ChannelState,
        cohort: Cohort,
        grid: Grid,
        bandwidth_hz: Tensor,
        delay: Tensor | None,
        phase: Tensor | None,
    ) -> None:
        self._h, self._cell, self._grid = h, cohort.flat_index, grid
        self._groups, self._late = state.h.shape[4], delay
        step = torch.arange(grid.carriers, dtype=torch.float64, device=h.device)
        self._frequency = (step - (grid.carriers - 1) / 2.0) / grid.carriers
        self._turn = None
        if delay is not None:
            self._turn = rotations(-delay.double()[:, None] * self._frequency, h.real.dtype)
        if phase is not None:
            turned = torch.polar(torch.ones_like(phase), phase)[:, None]
            self._turn = turned if self._turn is None else self._turn * turned
        self._a = None
        if state.paths_fn is not None:
            paths = state.paths_fn(len(grid.starts) - 1)
            self._a = self._rows(paths.a * state.gain.sqrt()[:, :, None, None, None])
            path_delay = paths.delay_s.expand(-1, h.shape[1], -1, -1)
            self._delay = (
                self._rows(path_delay) * bandwidth_hz[cohort.trial].double()[:, None, None]
            )
            self._rotation: tuple[int, Tensor] | None = None
        self._missing = self._compute_lateness()  # [N, B or 1, L]
        self._most = 0 if self._missing is None else int(self._missing.amax())
        self.ago = -(-self._most // (grid.carriers + grid.prefix))

    def _compute_lateness(self) -> Tensor | None:
        """Return the samples of its own OFDM symbol that each path misses; None without delays."""
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
        """Select the rows of a table [S, K, ...], [N, ...]."""
        return table.flatten(0, 1).index_select(0, self._cell)

    def _rotations(self, block: int) -> Tensor:
        """Return exp(-j 2 pi f_i tau) [N, L, n] of a block's paths, from a cache if possible."""
        at = min(block, self._delay.shape[1] - 1)
        if self._rotation is None or self._rotation[0] != at:
            cycles = -self._delay[:, at, :, None] * self._frequency
            self._rotation = at, rotations(cycles, self._h.real.dtype)
        return self._rotation[1]

    def _rotate(self, response: Tensor) -> Tensor:
        return response if self._turn is None else response * self._turn[:, None]

    def response(self, block: int) -> Tensor:
        """Return the frequency response [N, A, n] of each row in a coherence block.

        It assumes that all paths are within the prefix.
        """
        if self._a is not None:
            rotation = self._rotations(block)[:, None]
            return self._rotate(frequency_response(self._a[:, :, block], rotation))
        groups = self._h[..., block * self._groups : (block + 1) * self._groups]
        width = self._grid.carriers // self._groups
        return self._rotate(self._rows(groups).repeat_interleave(width, 2))

    def list_late(self, block: int) -> list[Late]:
        """Return the contributions of paths beyond the prefix in a coherence block, by sample."""
        if self._missing is None:
            return []
        missing = self._missing[:, min(block, self._missing.shape[1] - 1)]
        n, period = self._grid.carriers, self._grid.carriers + self._grid.prefix
        found = []
        for ago in range(1, self.ago + 1):
            for sample in range(min(n, self._most - (ago - 1) * period)):
                some = (missing - sample).div(period).ceil() == ago  # of the paths, [N, L]
                if self._a is None:
                    response = self.response(block) * some[:, None]
                else:
                    paths = self._a[:, :, block] * some[:, None]
                    response = self._rotate(torch.bmm(paths, self._rotations(block)))
                found.append((sample, ago, response))
        return found


def missing_samples(late: Tensor, prefix: int) -> Tensor:
    """Return the samples of the window in the previous OFDM symbol, of paths with delays `late`."""
    return (late - (prefix + SAMPLE)).ceil().clamp_min(0.0)


def differences(late: list[Late], sent: Tensor, earlier: Tensor, prefix: int) -> Tensor:
    """Compute the deviation of the first samples of each window from its own OFDM symbol.

    Parameters
    ----------
    late : list of Late
        Contributions to J samples.
    sent : Tensor, complex [N, M, n]
        Sub-carriers of the OFDM symbols.
    earlier : Tensor, complex [N, H, n]
        Sub-carriers of the H symbols before them, as many as the latest path needs.
    prefix : int
        Samples of the prefix.

    Returns
    -------
    Tensor, complex [N, A, M, J]
        Deviation of the received samples.
    """
    symbols, carriers = sent.shape[1:]
    # integer frequencies, because prefixes need whole numbers of cycles
    step = torch.arange(carriers, dtype=torch.float64, device=sent.device)
    cycles = (step - carriers // 2) / carriers
    every = torch.cat([earlier, sent], 1)
    columns: dict[int, Tensor] = {}
    for sample, ago, response in late:
        first = earlier.shape[1] - ago
        there = every[:, first : first + symbols]
        wrong = there * rotations(cycles * prefix * ago, sent.real.dtype) - sent
        wave = rotations(cycles * sample, sent.real.dtype) / math.sqrt(carriers)
        column = torch.bmm(response * wave, wrong.mT)
        columns[sample] = columns[sample] + column if sample in columns else column
    return torch.stack([columns[sample] for sample in range(len(columns))], -1)


def carrier_turns(offset: Tensor, first: int, stop: int, grid: Grid) -> Tensor:
    """Compute the rotations of samples by carrier offsets.

    Parameters
    ----------
    offset : Tensor, float [N]
        Carrier offsets e in sub-carrier spacings.
    first, stop : int
        OFDM symbols m = first .. stop - 1.
    grid : Grid
        Number n of sub-carriers, and prefix.

    Returns
    -------
    Tensor, complex128 [N, 1, M, n]
        exp(j 2 pi e (m (n + prefix) + j) / n) of each sample j.
    """
    n, device = grid.carriers, offset.device
    cycles = offset.double()[:, None]
    symbol = torch.arange(first, stop, dtype=torch.float64, device=device)
    sample = torch.arange(n, dtype=torch.float64, device=device)
    by_symbol = rotations(cycles * symbol * (1.0 + grid.prefix / n), torch.float64)
    by_sample = rotations(cycles * sample / n, torch.float64)
    return (by_symbol[:, :, None] * by_sample[:, None])[:, None]
