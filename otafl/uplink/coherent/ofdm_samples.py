"""Make the samples of OFDM symbols: of each device as it sends them, and of all as the antennas get
them. A sample's mean power is that of a sub-carrier.
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
from torch.nn.functional import pad

from otafl.core.contracts import Cohort
from otafl.uplink.coherent.arrivals import Arrivals, carrier_turns, differences
from otafl.uplink.coherent.ofdm_grid import Grid
from otafl.uplink.impairments.amplifier import clip_amplitude, peaks, rapp
from otafl.uplink.on_air import OnAir

CHUNK = 1 << 18
"""Samples of all rows and antennas that are made at a time."""


def to_samples(carriers: Tensor, samples: int) -> Tensor:
    """Return so many samples [..., N] of OFDM symbols [..., n], N at least n, without prefix."""
    before = samples // 2 - carriers.shape[-1] // 2
    bins = pad(carriers, (before, samples - carriers.shape[-1] - before))
    scale = math.sqrt(samples / carriers.shape[-1])
    return torch.fft.ifft(torch.fft.ifftshift(bins, -1), norm="ortho") * scale


def to_carriers(samples: Tensor, carriers: int) -> Tensor:
    """Return the sub-carriers [..., n] of samples [..., N], and leave others out."""
    before = samples.shape[-1] // 2 - carriers // 2
    bins = torch.fft.fftshift(torch.fft.fft(samples, norm="ortho"), -1)
    scale = math.sqrt(carriers / samples.shape[-1])
    return bins[..., before : before + carriers] * scale


@dataclass(frozen=True)
class LaidOut:
    """Hold a group's symbols on their way to sub-carriers.

    halves: one or two quadratures [m, L] of its m rows. amplitude: [m, Q] complex, what a segment's
    symbols are multiplied with. column: [L] the segment of each symbol. place: [L] where it is
    sent. source: [M, n] the symbol of each sub-carrier, -1 for none. rows: [m] int64 of the
    cohort's, None where they are all of them.
    """

    halves: list[Tensor]
    amplitude: Tensor
    column: Tensor
    place: Tensor
    source: Tensor
    rows: Tensor | None

    @classmethod
    def create(cls, on_air: OnAir, grid: Grid, cohort: Cohort) -> Self:
        """Lay a group out that some rows of the cohort send."""
        signal, segments = on_air.signal, on_air.segments
        p = signal.take_rows(on_air.coefficients.p.mT)
        place = grid.get_places(segments.uses)
        missing = segments.symbols * segments.halves - signal.num_coordinates
        rows = None
        if signal.cohort.num_rows != cohort.num_rows:
            rows = torch.searchsorted(cohort.flat_index, signal.cohort.flat_index)
        return cls(
            halves=segments.parts(pad(signal.x, (0, missing))),
            amplitude=p * on_air.normalised.scale[:, None],
            column=segments.index_segments(place.device),
            place=place,
            source=grid.sources(place),
            rows=rows,
        )

    def on_air(self, size: int) -> Tensor:
        """Return which of so many rows of the cohort send anything, [N] bool."""
        sends = (self.amplitude != 0).any(1)
        return sends if self.rows is None else sends.new_zeros(size).index_copy(0, self.rows, sends)

    def carriers(self, first: int, stop: int, size: int) -> Tensor:
        """Return what is sent on the sub-carriers [N, stop - first, n] of some OFDM symbols."""
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
    """Send OFDM symbols of N rows, and add up what becomes of them.

    Parameters
    ----------
    oversampling : samples of the transmitter over those of a sub-carrier each.
    peak : [N] largest magnitude of a sample, None: any.
    saturation, smoothness : [N], of the Rapp amplifier; None: it is linear.
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
        """Return the sub-carriers [N, M, n] that leave the amplifier."""
        samples = to_samples(carriers, self._oversampling * carriers.shape[-1])
        self._peaks = self._peaks + peaks(samples.detach()).sum(1)
        own = carriers.detach()
        self._power = self._power + torch.linalg.vector_norm(own, dim=(1, 2)).square()
        if self._peak is None and self._saturation is None:
            return carriers
        if self._peak is not None:
            samples = clip_amplitude(samples, self._peak[:, None, None])
        if self._saturation is not None:
            level, smoothness = (one[:, None, None] for one in (self._saturation, self._smoothness))
            samples = rapp(samples, level, smoothness)
        sent = to_carriers(samples, carriers.shape[-1])
        off = sent.detach() - own
        self._off = self._off + torch.linalg.vector_norm(off, dim=(1, 2)).square()
        self._cross = self._cross + (off * own.conj()).sum((1, 2))
        return sent

    def figures(self, carriers: int) -> Tensor:
        """Return of each row of so many sub-carriers that has sent anything the mean over its OFDM
        symbols of the peak power over the mean power of all, the squared error vector magnitude
        about the one complex gain that fits best, and 1; else zeros: [N, 3]."""
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
    """Yield the samples [S, A, m, n] that the antennas get behind the prefixes, without noise, of
    some OFDM symbols after the other.

    Parameters
    ----------
    laid : the groups.
    transmit : sub-carriers [N, m, n] -> those that are sent.
    arrivals : of the N rows.
    turning : [N] carrier offsets in spacings, None: none.
    cohort : the rows.
    """
    n = grid.carriers
    earlier: Tensor | None = None
    for block, (start, end) in enumerate(itertools.pairwise(grid.starts)):
        response, beyond = arrivals.response(block)[:, :, None], arrivals.list_beyond(block)
        width = max(1, CHUNK // max(1, response.numel()))
        for first in range(start, end, width):
            stop = min(first + width, end)
            groups = (group.carriers(first, stop, cohort.num_rows) for group in laid)
            sent = transmit(functools.reduce(torch.add, groups))
            samples = to_samples(response * sent[:, None], n)
            if beyond:
                if earlier is None:
                    earlier = sent.new_zeros(len(sent), arrivals.ago, n)
                off = differences(beyond, sent, earlier, grid.prefix)
                samples = samples + pad(off, (0, n - off.shape[3]))
                earlier = torch.cat([earlier, sent], 1)[:, -arrivals.ago :]
            if turning is not None:
                turns = carrier_turns(turning, first, stop, grid)
                samples = samples * turns.to(samples.dtype)
            yield cohort.pad_by_trial(samples).sum(1)
