"""What is transmitted of a group, which a scheme superposes: rows, channels and coefficients."""

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
    """What is transmitted of a group.

    With c_k = Re(h_k p_k) / sqrt(eta), the receiver gets sum_k c_k K w_k x_k + n of it.

    Parameters
    ----------
    slot : Slot
        What the groups of the payload share.
    sent : Signal
        Rows x_k that devices have to send, [n, P].
    normalised : Normalisation
        Their segments, scales and powers.
    channels : ScalarChannels
        h [S, Q, K] behind the combiner, and the noise.
    coefficients : Coefficients
        Transmit scalars p [S, Q, K] and receive scaling eta [S, Q].
    part : SentPart or None
        What crashing devices have sent; None if none crash.
    """

    slot: Slot
    sent: Signal
    normalised: Normalisation
    channels: ScalarChannels
    coefficients: Coefficients
    part: SentPart | None

    @property
    def segments(self) -> Segments:
        """Return the group's segments."""
        return self.normalised.segments

    @property
    def signal(self) -> Signal:
        """Return the rows as far as they are sent."""
        return self.sent if self.part is None else self.part.signal

    @property
    def energy(self) -> Tensor:
        """Return the sum of squares of what each device sends before p, [S, Q, K]."""
        if self.part is None:
            return self.normalised.energy
        energy = compute_energies(self.part.signal, self.segments)
        return self.sent.grid(energy * self.normalised.scale.square()[:, None]).mT

    def expand(self, values: Tensor) -> Tensor:
        """Expand values [n, Q] or [S, Q] of the segments to the coordinates, [.., P]."""
        return self.segments.expand(values, self.sent.num_coordinates)

    @functools.cached_property
    def sent_gain(self) -> Tensor:
        """Return p / sqrt(eta) [S, Q, K]."""
        return self.coefficients.p / self.coefficients.eta.sqrt()[..., None]

    @functools.cached_property
    def gain(self) -> Tensor:
        """Return h p / sqrt(eta) [S, Q, K] complex, whose real part is c_k."""
        return self.channels.h * self.sent_gain

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """Return 1 for the rows that count in a segment, else 0: [n, Q]."""
        return self.sent.take_rows(self.coefficients.active_mask.mT).to(self.normalised.scale.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Return W of who counts, [S, Q]: of who is on air, for all that the server knows."""
        return self.sent.sum_by_trial(self.sent.weight[:, None] * self.active_rows)

    @functools.cached_property
    def unit(self) -> Tensor:
        """Return what the receiver multiplies Re(f^H y) / sqrt(eta) with, [S, Q]: 1 / (K W) for a
        mean, 1 / K where the sum is divided coordinate by coordinate, 1 for a sum."""
        sent, unit = self.sent, torch.ones_like(self.weight)
        if sent.linear:
            unit = unit / sent.cohort.rows_per_trial.clamp_min(1.0)[:, None]
            if sent.mask is None:
                unit = unit / self.weight.clamp_min(1e-12)
        return unit

    @property
    def row_unit(self) -> Tensor:
        """Return a row's scale before p times what the receiver multiplies with, [n, Q]."""
        return self.normalised.scale[:, None] * self.unit[self.sent.cohort.trial]

    @property
    def row_gain(self) -> Tensor:
        """Return what a row's symbol is multiplied with on its way to the estimate, [n, Q]
        complex."""
        return self.sent.take_rows(self.gain.mT) * self.row_unit

    @property
    def variance(self) -> Tensor:
        """Return the noise variance [S, Q] of an estimated real, 0 where nobody is on air."""
        variance = self.channels.noise / self.coefficients.eta * self.unit.square()
        return torch.where(self.weight > 0, variance, 0.0)

    @property
    def received_unit(self) -> Tensor:
        """Return what a received real is multiplied with in the estimate, [S, Q], 0 where nobody is
        on air."""
        unit = self.unit / self.coefficients.eta.sqrt()
        return torch.where(self.weight > 0, unit, 0.0)

    def weigh_coordinates(self) -> Tensors | None:
        """Return the weight on air out of 1 at each real, blocks [S, *shape], of a group that is
        cut in segments; None of another, or of one with a mask."""
        sent, segments = self.sent, self.segments
        if sent.mask is not None or len(segments.bounds) == 1:
            return None
        return sent.blocks(self.expand(self.weight))

    @property
    def delivered_mask(self) -> Callable[[], Tensor]:
        """Return a function as in `LinkReport.delivered_mask_fns`; it keeps no payload."""
        sent, stop = self.sent, None if self.part is None else self.part.stop
        active = sent.take_rows(self.coefficients.on_air_mask.mT)
        index_segments = sent.num_coordinates, sent.place
        return functools.partial(_mark, sent.cohort, active, self.segments, stop, *index_segments)

    def weigh_known(self, mask: Tensor) -> Tensor:
        """Return the weight on air that knows each coordinate, [S, P], by the rows' mask [n, P]."""
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
    """Mark the coordinates that each device had on air, [S, K, P] bool; [S, K] where it is all of
    them or none.

    Parameters
    ----------
    cohort : the n rows.
    active : [n, Q] bool, the rows on air in a segment.
    stop : [n, 1] channel uses of the group until a row's crash; None where none crash.
    place : [P] the column of each coordinate; None in order.
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
