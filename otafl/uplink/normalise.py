"""Normalise what devices have to send of a group: its symbols, their energies and powers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.constants import constant
from otafl.uplink.interleaving import Uses
from otafl.uplink.layout import Slot
from otafl.uplink.segments import Segments, energies, segment_sums, stretch_means
from otafl.uplink.signal import Signal, squared_norm


@dataclass(frozen=True)
class Symbols:
    """Hold what devices have to send of a group, normalised.

    index: of the group in its payload, which its noise depends on. uses: its channel uses. sent:
    the rows, without the means that were taken off. segments: Q of them. lengths: [Q] channel uses
    of each. means: [n, Q] taken off, None where nothing was. scale: [n] what a row is multiplied
    with before p, K w_k for a mean. row_energy: [n, Q], energy: [S, Q, K] sum of squares of a
    segment before p. power: [S, Q, K] mean symbol power m of the normalised stretch before p.
    """

    slot: Slot
    index: int
    uses: Uses
    sent: Signal
    segments: Segments
    lengths: Tensor
    means: Tensor | None
    scale: Tensor
    row_energy: Tensor
    energy: Tensor
    power: Tensor

    @property
    def variation(self) -> Tensor:
        """Return the squared multivariate coefficient of variation of what is sent over the
        devices, [S, Q]: power about the devices' common mean, over that of the mean (unbiased in K,
        at least 0)."""
        sent, segments, energy = self.sent, self.segments, self.row_energy
        k = sent.cohort.rows_of[:, None]
        total = sent.by_trial(energy)
        both = torch.zeros_like(total)
        coefficient = self.scale[:, None, None].expand(-1, len(segments.bounds), 1)
        for part in segments.parts(sent.x):
            sums = segment_sums(sent, part, coefficient, segments)[:, 0]
            for q, (first, stop) in enumerate(segments.bounds):
                both[:, q] += squared_norm(sums[:, first:stop])
        total, both = segments.by_scope(total), segments.by_scope(both)
        mean = ((both - total) / (k * (k - 1.0)).clamp_min(1.0)).clamp_min(1e-30)
        return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)


def normalise(
    slot: Slot, index: int, uses: Uses, sent: Signal, segments: Segments, centre: bool
) -> Symbols:
    """Scale the rows to what devices send before p, and take their powers.

    Parameters
    ----------
    slot, index, uses : of the group.
    sent : its rows [n, P].
    segments : Q segments, of some normalised stretches.
    centre : take the mean of each normalised stretch off, but of rows that know different parts.
    """
    means = stretch_means(sent, segments) if centre and sent.mask is None else None
    if means is not None:
        sent = replace(sent, x=sent.x - segments.at_reals(means, sent.reals))
    scale = sent.scale
    energy = energies(sent, segments) * scale.square()[:, None]
    lengths = constant(segments.lengths, energy.dtype, energy.device)
    power = sent.grid(segments.by_scope(energy) / segments.by_scope(lengths)).mT
    grid = sent.grid(energy).mT
    return Symbols(slot, index, uses, sent, segments, lengths, means, scale, energy, grid, power)
