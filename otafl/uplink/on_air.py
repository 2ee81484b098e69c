"""Transmission of a payload group, which a transport superposes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Coefficients, Cohort, Tensors
from otafl.uplink.bounds import SentPart
from otafl.uplink.combine import ScalarChannels
from otafl.uplink.layout import Slot
from otafl.uplink.normalise import Normalisation
from otafl.uplink.segments import Segments, compute_energies, sum_segments
from otafl.uplink.signal import Signal


@dataclass(frozen=True)
class OnAir:
    r"""Transmission of a payload group.

    Parameters
    ----------
    slot : Slot
        Channels, budgets and limits that the groups of the payload share.
    sent : Signal
        Rows x_k of the devices, [n, P].
    normalised : Normalisation
        Their segments, scales and powers.
    channels : ScalarChannels
        Channels h [S, Q, K] behind the combiner, and the noise.
    coefficients : Coefficients
        Transmit scalars p [S, Q, K] and receive scaling eta [S, Q].
    part : SentPart or None
        Part of the rows that crashing devices send; None if none crash.

    Notes
    -----
    The receiver scales the sum by the receive scaling eta and gets, with the effective gains c_k,

    .. math::

        \sum_k c_k K w_k x_k + n, \quad c_k = \mathrm{Re}(h_k p_k) / \sqrt{\eta}
    """

    slot: Slot
    sent: Signal
    normalised: Normalisation
    channels: ScalarChannels
    coefficients: Coefficients
    part: SentPart | None

    @property
    def segments(self) -> Segments:
        """Segments of the group."""
        return self.normalised.segments

    @property
    def signal(self) -> Signal:
        """Rows, zero from the crash of a device on."""
        return self.sent if self.part is None else self.part.signal

    @property
    def energy(self) -> Tensor:
        """Sum of squares of each device's transmitted symbols before p, [S, Q, K]."""
        if self.part is None:
            return self.normalised.energy
        energy = compute_energies(self.part.signal, self.segments)
        return self.sent.grid(energy * self.normalised.scale.square()[:, None]).mT

    def expand(self, values: Tensor) -> Tensor:
        """Expand values [n, Q] or [S, Q] of the segments to the coordinates, [.., P]."""
        return self.segments.expand(values, self.sent.num_coordinates)

    @functools.cached_property
    def sent_gain(self) -> Tensor:
        """Scaled transmit scalar p / sqrt(eta), [S, Q, K] complex."""
        return self.coefficients.p / self.coefficients.eta.sqrt()[..., None]

    @functools.cached_property
    def gain(self) -> Tensor:
        """Complex gain h p / sqrt(eta), [S, Q, K], whose real part is the effective gain c_k."""
        return self.channels.h * self.sent_gain

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """Indicator of the rows that the receiver counts in a segment, 1 or 0: [n, Q]."""
        return self.sent.take_rows(self.coefficients.active_mask.mT).to(self.normalised.scale.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Total weight W [S, Q] of the devices that the server treats as active."""
        return self.sent.sum_by_trial(self.sent.weight[:, None] * self.active_rows)

    @functools.cached_property
    def unit(self) -> Tensor:
        """Factor of Re(f^H y) / sqrt(eta) in the estimate, [S, Q].

        It is 1 / (K W) for a mean, 1 / K if the sum is divided by coordinate, 1 for a sum.
        """
        sent, unit = self.sent, torch.ones_like(self.weight)
        if sent.linear:
            unit = unit / sent.cohort.rows_per_trial.clamp_min(1.0)[:, None]
            if sent.mask is None:
                unit = unit / self.weight.clamp_min(1e-12)
        return unit

    @property
    def row_unit(self) -> Tensor:
        """Scale of a row before p times the receiver's factor, [n, Q]."""
        return self.normalised.scale[:, None] * self.unit[self.sent.cohort.trial]

    @property
    def row_gain(self) -> Tensor:
        """Complex factor of a row's symbols in the estimate, [n, Q], in the symbols' precision."""
        gain = self.sent.take_rows(self.gain.mT) * self.row_unit
        return gain.to(self.sent.x.dtype.to_complex())

    @property
    def variance(self) -> Tensor:
        """Noise variance [S, Q] of an estimated real number, 0 if no device is on air."""
        variance = self.channels.noise / self.coefficients.eta * self.unit.square()
        return torch.where(self.weight > 0, variance, 0.0)

    @property
    def noise_std(self) -> Tensor:
        """Standard deviation [S, Q] of that noise, in the symbols' precision."""
        return self.variance.sqrt().to(self.sent.x.dtype)

    @property
    def received_unit(self) -> Tensor:
        """Factor of a received real number in the estimate, [S, Q], 0 if no device is on air."""
        unit = self.unit / self.coefficients.eta.sqrt()
        return torch.where(self.weight > 0, unit, 0.0).to(self.sent.x.dtype)

    def weigh_coordinates(self) -> Tensors | None:
        """Return the weight on air, out of 1, at each coordinate: Tensors [S, *shape].

        It is None for a group of one segment, and for one with a mask.
        """
        sent, segments = self.sent, self.segments
        if sent.mask is not None or len(segments.bounds) == 1:
            return None
        return sent.blocks(self.expand(self.weight))

    @property
    def delivered_mask(self) -> Callable[[], Tensor]:
        """Function that returns the delivered coordinates, as in `LinkReport.delivered_mask_fns`.

        It keeps no tensor of the payload's size.
        """
        sent, stop = self.sent, None if self.part is None else self.part.stop
        active = sent.take_rows(self.coefficients.on_air_mask.mT)
        extent = sent.num_coordinates, sent.place
        return functools.partial(_mark, sent.cohort, active, self.segments, stop, *extent)

    def weigh_known(self, mask: Tensor) -> Tensor:
        """Return the weight on air that has each coordinate, [S, P], by the mask [n, P]."""
        sent, segments = self.sent, self.segments
        weight = (sent.weight[:, None] * self.active_rows)[..., None]
        parts = [sum_segments(sent, part, weight, segments)[:, 0] for part in segments.parts(mask)]
        return torch.cat(parts, 1)


def _mark(
    cohort: Cohort,
    active: Tensor,
    segments: Segments,
    stop: Tensor | None,
    num_coordinates: int,
    place: Tensor | None,
) -> Tensor:
    """Mark the coordinates that each device has on air, [S, K, P] bool.

    The result is [S, K] if a device has all of its coordinates on air, or none.

    Parameters
    ----------
    cohort : Cohort
        The n rows.
    active : Tensor, bool [n, Q]
        Rows on air in a segment.
    segments : Segments
        Segments of the group.
    stop : Tensor, float [n, 1], or None
        Channel uses of the group until a row's crash; None if none crash.
    num_coordinates : int
        Number of coordinates, P.
    place : Tensor, int64 [P], or None
        Column of each coordinate; None if they are in order.
    """
    if stop is None and len(segments.bounds) == 1:
        return cohort.scatter_to_grid(active[:, 0], False)
    rows = segments.expand(active, num_coordinates)
    if stop is not None:
        uses = torch.arange(segments.symbols, device=stop.device).repeat(segments.halves)
        rows = rows & (uses[:num_coordinates] < stop)
    if place is not None:
        rows = rows.index_select(1, place)
    return cohort.scatter_to_grid(rows, False)
