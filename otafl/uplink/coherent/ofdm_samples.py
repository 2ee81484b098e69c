"""Samples of OFDM symbols, as each device sends them and as the antennas receive their sum.

The mean power of a sample is that of a sub-carrier.

References
----------
Rapp 1991, "Effects of HPA-Nonlinearity on a 4-DPSK/OFDM-Signal for a Digital Sound Broadcasting
    System".
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Cohort
from otafl.uplink.coherent.ofdm_grid import Arrivals, Grid, carrier_turns, differences
from otafl.uplink.transmission import Transmission

CHUNK = 1 << 18
"""Samples of all rows and antennas that are computed at a time."""


def to_samples(carriers: Tensor, samples: int) -> Tensor:
    """Compute N >= n samples [..., N] of OFDM symbols [..., n], without prefix."""
    before = samples // 2 - carriers.shape[-1] // 2
    bins = functional.pad(carriers, (before, samples - carriers.shape[-1] - before))
    scale = math.sqrt(samples / carriers.shape[-1])
    return torch.fft.ifft(torch.fft.ifftshift(bins, -1), norm="ortho") * scale


def to_carriers(samples: Tensor, carriers: int) -> Tensor:
    """Compute n sub-carriers [..., n] from samples [..., N], without those outside the band."""
    before = samples.shape[-1] // 2 - carriers // 2
    bins = torch.fft.fftshift(torch.fft.fft(samples, norm="ortho"), -1)
    scale = math.sqrt(carriers / samples.shape[-1])
    return bins[..., before : before + carriers] * scale


@dataclass(frozen=True)
class LaidOut:
    """Symbols of a group with their sub-carriers.

    Parameters
    ----------
    halves : list of Tensor, float [m, L]
        One or two quadratures of the m rows.
    amplitude : Tensor, complex [m, Q]
        Factor of the symbols of a segment.
    column : Tensor, int64 [L]
        Segment of each symbol.
    place : Tensor, int64 [L]
        Position of each symbol in the slot.
    source : Tensor, int64 [M, n]
        Symbol on each sub-carrier, -1 for none.
    rows : Tensor, int64 [m], or None
        Rows of the cohort; None for all.
    """

    halves: list[Tensor]
    amplitude: Tensor
    column: Tensor
    place: Tensor
    source: Tensor
    rows: Tensor | None

    @classmethod
    def create(cls, on_air: Transmission, grid: Grid, cohort: Cohort) -> Self:
        """Lay out a group that some rows of the cohort send."""
        signal, segments = on_air.signal, on_air.segments
        p = signal.take_rows(on_air.scalars.p.mT)
        place = grid.place[segments.uses.start : segments.uses.stop]
        missing = segments.symbols * segments.halves - signal.num_coordinates
        rows = None
        if signal.cohort.num_rows != cohort.num_rows:
            rows = torch.searchsorted(cohort.flat_index, signal.cohort.flat_index)
        return cls(
            halves=segments.parts(functional.pad(signal.x, (0, missing))),
            amplitude=(p * on_air.scale[:, None]).to(signal.x.dtype.to_complex()),
            column=segments.index_segments(place.device),
            place=place,
            source=grid.sources(place),
            rows=rows,
        )

    def on_air(self, size: int) -> Tensor:
        """Return the rows of the cohort that transmit, [N] bool with N = `size`."""
        sends = (self.amplitude != 0).any(1)
        return sends if self.rows is None else sends.new_zeros(size).index_copy(0, self.rows, sends)

    def carriers(self, first: int, stop: int, size: int) -> Tensor:
        """Return the sub-carriers [N, stop - first, n] of some OFDM symbols, as sent."""
        source = self.source[first:stop]
        at = source.clamp_min(0).flatten()
        values = [half.index_select(1, at) for half in self.halves]
        symbols = values[0] if len(values) == 1 else torch.complex(*values)
        known = (source >= 0).flatten()
        sent = (symbols * known * self.amplitude[:, self.column[at]]).unflatten(1, source.shape)
        if self.rows is None:
            return sent
        return sent.new_zeros(size, *source.shape).index_copy(0, self.rows, sent)


class Transmitter:
    """Transmitter chain of N rows, with statistics of peaks and distortion.

    Parameters
    ----------
    oversampling : int
        Samples at the amplifier per transmitted sample.
    peak : Tensor, float [N], or None
        Largest magnitude of a sample; None without clipping.
    saturation : Tensor, float [N], or None
        Saturation amplitude of the Rapp amplifier; None for a linear one.
    smoothness : Tensor, float [N]
        Smoothness of the Rapp amplifier.
    """

    def __init__(
        self,
        oversampling: int,
        peak: Tensor | None,
        saturation: Tensor | None,
        smoothness: Tensor,
    ) -> None:
        self._oversampling, self._peak = oversampling, peak
        self._saturation, self._smoothness = saturation, smoothness
        none = torch.zeros_like(smoothness)
        self._power = self._peaks = self._off = none
        self._cross = none.to(smoothness.dtype.to_complex())

    def __call__(self, carriers: Tensor) -> Tensor:
        """Return the sub-carriers [N, M, n] behind the amplifier, and add to the statistics."""
        samples = to_samples(carriers, self._oversampling * carriers.shape[-1])
        self._peaks = self._peaks + peaks(samples.detach()).sum(1)
        own = carriers.detach()
        self._power = self._power + torch.linalg.vector_norm(own, dim=(1, 2)).square()
        if self._peak is None and self._saturation is None:
            return carriers
        if self._peak is not None:
            # clip complex samples to magnitudes of at most `peak` (inf: no clipping), keeping
            # phases
            samples = samples / (samples.abs() / self._peak[:, None, None]).clamp_min(1.0)
        if self._saturation is not None:
            level, smoothness = (one[:, None, None] for one in (self._saturation, self._smoothness))
            samples = rapp(samples, level, smoothness)
        sent = to_carriers(samples, carriers.shape[-1])
        off = sent.detach() - own
        self._off = self._off + torch.linalg.vector_norm(off, dim=(1, 2)).square()
        self._cross = self._cross + (off * own.conj()).sum((1, 2))
        return sent

    def figures(self, carriers: int) -> Tensor:
        """Return peak-to-average power ratio, squared error vector magnitude, and 1 for each row.

        The first is the mean over OFDM symbols of the peak power, over the mean power of all. The
        second is about the complex gain that fits best. Rows that have sent nothing have zeros:
        [N, 3].
        """
        on = self._power > 0
        power = self._power.where(on, 1.0)
        cross = self._cross / power
        left = (self._off / power - cross.abs().square()).clamp_min(0.0)
        figures = (carriers * self._peaks / power, left / (1.0 + cross).abs().square(), on)
        return torch.stack([one * on for one in figures], 1)


def windows(
    laid: Sequence[LaidOut],
    transmit: Callable[[Tensor], Tensor],
    arrivals: Arrivals,
    turning: Tensor | None,
    cohort: Cohort,
    grid: Grid,
) -> Iterator[Tensor]:
    """Yield the samples [S, A, m, n] at the antennas behind the prefixes, without noise.

    Each yields some OFDM symbols after the other.

    Parameters
    ----------
    laid : sequence of LaidOut
        The groups.
    transmit : callable
        Transmitter chain, sub-carriers [N, m, n] -> transmitted sub-carriers [N, m, n].
    arrivals : Arrivals
        Frequency responses of the N rows.
    turning : Tensor, float [N], or None
        Carrier offsets in spacings; None without offsets.
    cohort : Cohort
        The rows.
    grid : Grid
        OFDM symbols of the slot.
    """
    n = grid.carriers
    earlier: Tensor | None = None
    for block, (start, end) in enumerate(itertools.pairwise(grid.starts)):
        response, late = arrivals.response(block)[:, :, None], arrivals.list_late(block)
        width = max(1, CHUNK // max(1, response.numel()))
        for first in range(start, end, width):
            stop = min(first + width, end)
            groups = (group.carriers(first, stop, cohort.num_rows) for group in laid)
            sent = transmit(functools.reduce(torch.add, groups))
            samples = to_samples(response * sent[:, None], n)
            if late:
                if earlier is None:
                    earlier = sent.new_zeros(len(sent), arrivals.ago, n)
                off = differences(late, sent, earlier, grid.prefix)
                samples = samples + functional.pad(off, (0, n - off.shape[3]))
                earlier = torch.cat([earlier, sent], 1)[:, -arrivals.ago :]
            if turning is not None:
                turns = carrier_turns(turning, first, stop, grid)
                samples = samples * turns.to(samples.dtype)
            yield cohort.pad_by_trial(samples).sum(1)


def rapp(samples: Tensor, saturation: Tensor, smoothness: Tensor) -> Tensor:
    """Amplify complex samples by the Rapp model, with unit gain for small samples.

    All arguments broadcast.

    Parameters
    ----------
    samples : Tensor, complex
        Samples x.
    saturation : Tensor, float
        Saturation amplitude A, the largest |y|.
    smoothness : Tensor, float
        Smoothness p; at a larger one the amplifier comes nearer to clipping at A.

    Returns
    -------
    Tensor, complex
        Amplified samples y, with the phases of x.

    Notes
    -----
    .. math::

        |y| = |x| / (1 + (|x| / A)^{2 p})^{1 / (2 p)}
    """
    over = samples.abs() / saturation
    by = over.clamp_min(1.0)  # factored out, so that no base of a power is above one
    both = by.pow(-2.0 * smoothness) + (over / by).pow(2.0 * smoothness)
    return samples / (by * both.pow(0.5 / smoothness))


def peaks(samples: Tensor) -> Tensor:
    """Return the peak power of each OFDM symbol's samples [..., n].

    With n sub-carriers that are CN(0, 1), and n samples, P(peak > g) = 1 - (1 - exp(-g))^n.
    """
    return samples.abs().amax(-1).square()
