"""Normalise what devices have to send of a group: its symbols, their energies and powers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.uplink.segments import Segments, compute_energies, compute_means, sum_segments
from otafl.uplink.signal import Signal, compute_squared_norm


@dataclass(frozen=True)
class Normalisation:
    """How the symbols of a group are cut and scaled, and how strong they are before p.

    Parameters
    ----------
    segments : Segments
        Q stretches of channel uses, each sent with one transmit scalar.
    lengths : Tensor, float [Q]
        Channel uses of each segment.
    means : Tensor, float [n, Q], or None
        What was taken off the rows.
    scale : Tensor, float [n]
        What a row is multiplied with before p: K w_k for a mean.
    row_energy : Tensor, float [n, Q]
        Sum of squares of a row's symbols in a segment, before p.
    energy : Tensor, float [S, Q, K]
        The same of each device.
    power : Tensor, float [S, Q, K]
        Mean symbol power m of the normalised stretch, before p.
    """

    segments: Segments
    lengths: Tensor
    means: Tensor | None
    scale: Tensor
    row_energy: Tensor
    energy: Tensor
    power: Tensor


def normalise(sent: Signal, segments: Segments, centre: bool) -> tuple[Signal, Normalisation]:
    """Take the means off the rows, and compute their scales, energies and powers.

    With x_k the rows [n, P] and l_q the channel uses of segment q, the mean symbol power is
    m_kq = |K w_k x_k|^2 / l over the stretch that q lies in.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    segments : Segments
        Q segments, of some normalised stretches.
    centre : bool
        Whether the mean of each stretch is taken off, except of rows with a mask.

    Returns
    -------
    tuple of Signal and Normalisation
        The rows without their means, and what is known of them.
    """
    means = compute_means(sent, segments) if centre and sent.mask is None else None
    if means is not None:
        sent = replace(sent, x=sent.x - segments.expand(means, sent.num_coordinates))
    scale = sent.scale
    energy = compute_energies(sent, segments) * scale.square()[:, None]
    lengths = get_constant(segments.lengths, energy.dtype, energy.device)
    power = sent.grid(segments.sum_over_scopes(energy) / segments.sum_over_scopes(lengths)).mT
    grid = sent.grid(energy).mT
    return sent, Normalisation(segments, lengths, means, scale, energy, grid, power)


def compute_variation(sent: Signal, normalised: Normalisation) -> Tensor:
    """Compute the squared multivariate coefficient of variation of symbols over devices, [S, Q].

    It is the power about the devices' common mean over that of the mean (unbiased in K, at least
    0).
    """
    segments, energy = normalised.segments, normalised.row_energy
    k = sent.cohort.rows_per_trial[:, None]
    total = sent.sum_by_trial(energy)
    both = torch.zeros_like(total)
    coefficient = normalised.scale[:, None, None].expand(-1, len(segments.bounds), 1)
    for part in segments.parts(sent.x):
        sums = sum_segments(sent, part, coefficient, segments)[:, 0]
        for q, (first, stop) in enumerate(segments.bounds):
            both[:, q] += compute_squared_norm(sums[:, first:stop])
    total, both = segments.sum_over_scopes(total), segments.sum_over_scopes(both)
    mean = ((both - total) / (k * (k - 1.0)).clamp_min(1.0)).clamp_min(1e-30)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)
