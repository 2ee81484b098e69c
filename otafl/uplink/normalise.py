"""Normalisation of a payload group: the symbols, energies and powers of each device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.uplink.segments import Segments, compute_energies, compute_means, sum_segments
from otafl.uplink.signal import Signal, compute_squared_norm


@dataclass(frozen=True)
class Normalisation:
    """Segments, scales, energies and powers of a group's symbols before the transmit scalars.

    Parameters
    ----------
    segments : Segments
        Q stretches of channel uses, each sent with one transmit scalar.
    lengths : Tensor, float [Q]
        Channel uses of each segment.
    means : Tensor, float [n, Q], or None
        Means that were subtracted from the rows.
    scale : Tensor, float [n]
        Factor of a row before p: K w_k for a mean.
    row_energy : Tensor, float64 [n, Q]
        Sum of squares of a row's symbols in a segment, before p.
    energy : Tensor, float64 [S, Q, K]
        The same for each device.
    power : Tensor, float64 [S, Q, K]
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
    r"""Subtract the means from the rows, and compute their scales, energies and powers.

    Parameters
    ----------
    sent : Signal
        Rows x_k of the group, [n, P].
    segments : Segments
        Q segments, grouped into normalised stretches.
    centre : bool
        Whether the mean of each stretch is subtracted, except in rows with a mask.

    Returns
    -------
    tuple of Signal and Normalisation
        The rows without their means, and their energies and powers.

    Notes
    -----
    With l the channel uses of the stretch that contains segment q, the mean symbol power is

    .. math::

        m_{kq} = \| K w_k x_k \|^2 / l
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
    """Compute how much symbols vary over the devices.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    normalised : Normalisation
        Their segments and energies.

    Returns
    -------
    Tensor, float64 [S, Q]
        Squared multivariate coefficient of variation: the power of the deviations from the mean
        over the devices, divided by the power of the mean. The latter is estimated without bias
        in K; the result is at least 0.
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
    mean = (both - total) / (k * (k - 1.0)).clamp_min(1.0)
    mean = mean.maximum(1e-30 * total).clamp_min(torch.finfo(mean.dtype).tiny)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)
