"""Payload groups: rows that transmit, their means and variation, and the error-free aggregate."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Tensors
from otafl.models.base import flatten
from otafl.uplink.signal import Segments, Signal, compute_energies


def make_signal(group: Group, cohort: Cohort, index: int = 0) -> Signal:
    """Make the signal of a group's rows that transmit.

    Weights are normalised over these rows.

    Parameters
    ----------
    group : Group
        The group as the devices have it.
    cohort : Cohort
        The N rows that take part.
    index : int
        Position of the group in its payload.

    Returns
    -------
    Signal
        The n rows.
    """
    x = flatten(group.tensors)
    known = group.full_mask
    mask = None if known is None else flatten(known).to(x.dtype)
    share, power = group.known_fraction, group.power_factor
    if group.row_index is not None or not cohort.all_transmit:
        rows = (
            torch.arange(cohort.num_rows, device=x.device)
            if group.row_index is None
            else group.row_index
        )
        keep = cohort.transmit_mask[rows].nonzero().squeeze(1)
        keep = keep[torch.argsort(rows[keep], stable=True)]  # `grid` needs them in order
        x, cohort = x[keep], cohort.take(rows[keep])
        mask, power, share = (None if one is None else one[keep] for one in (mask, power, share))
    return Signal(
        index=index,
        group=group,
        x=x if mask is None else x * mask,
        mask=mask,
        cohort=cohort,
        share=share,
        power_factor=power,
    )


def select_rows(group: Group, cohort: Cohort) -> Tensors:
    """Return the update of each transmitting row, for transports that deliver each of them."""
    if group.row_index is None and cohort.all_transmit:
        return group.tensors
    sends = (
        cohort.transmit_mask if group.row_index is None else cohort.transmit_mask[group.row_index]
    )
    keep = sends.nonzero().squeeze(1)
    return {name: block[keep] for name, block in group.tensors.items()}


def compute_error_free(sent: Signal) -> tuple[Tensors, Tensor | Tensors]:
    """Compute the aggregate and the weight that an error-free uplink delivers.

    Parameters
    ----------
    sent : Signal
        Rows of the group.

    Returns
    -------
    aggregate : Tensors [S, *shape]
        Mean, or sum.
    weight : Tensor [S], or Tensors [S, *shape]
        Delivered weight; of each coordinate if the rows have a mask.
    """
    flat = sent.sum(sent.exact.unsqueeze(1)).select(1, 0)
    if sent.mask is None and sent.out_of_one:
        return sent.blocks(flat), (sent.cohort.rows_per_trial > 0).to(flat.dtype)
    if sent.mask is None:
        return sent.blocks(flat), sent.sum_by_trial(sent.weight)
    reached = sum_masked_weights(sent)
    return sent.blocks(divide(flat, reached) if sent.linear else flat), sent.blocks(reached)


def sum_masked_weights(sent: Signal) -> Tensor:
    """Sum the weights of the rows that have each coordinate, [S, P]."""
    assert sent.mask is not None
    return sent.sum(sent.weight[:, None], sent.mask)[:, 0]


def divide(total: Tensor, weight: Tensor) -> Tensor:
    """Divide a total by a weight, both [S, P]; 0 where no device has the coordinate."""
    return torch.where(weight > 0, total / weight.clamp_min(1e-12), 0.0)


def divide_by_weights(
    sent: Signal, total: Tensor, exact: Tensor, reached: Tensor
) -> tuple[Tensor, Tensor, Tensors]:
    """Divide the sums of a group with a mask by the weights at each coordinate.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    total, exact : Tensor, float [S, P]
        Received and error-free sum. They are divided only if the group asks for a mean.
    reached : Tensor, float [S, P]
        Delivered weight of each coordinate.

    Returns
    -------
    tuple of Tensor [S, P], Tensor [S, P] and Tensors [S, *shape]
        Received and error-free aggregate, and the delivered weight.
    """
    if sent.linear:
        total, exact = divide(total, reached), divide(exact, sum_masked_weights(sent))
    return total, exact, sent.blocks(reached)


def centre(sent: Signal, segments: Segments) -> tuple[Signal, Tensor | None]:
    """Subtract the mean of each normalised stretch, except in rows with a mask.

    Parameters
    ----------
    sent : Signal
        Rows x_k of the group, [n, P].
    segments : Segments
        Q segments, grouped into normalised stretches.

    Returns
    -------
    tuple of Signal and Tensor, float [n, Q]
        The rows without their means, and the means; None if nothing is subtracted.
    """
    if sent.mask is not None:
        return sent, None
    means = compute_means(sent, segments)
    return replace(sent, x=sent.x - segments.expand(means, sent.num_coordinates)), means


def compute_means(sent: Signal, segments: Segments) -> Tensor:
    """Compute the mean of each row's normalised stretch, at each of its segments: [n, Q]."""
    stops = sent.tensor_stops[:-1] if segments.scopes[-1] else []  # one scope, or all tensors
    means = [part.mean(1) for part in sent.x.tensor_split(stops, 1)]
    return torch.stack(means, 1)[:, list(segments.scopes)]


def compute_variation(
    sent: Signal, segments: Segments, scale: Tensor, row_energy: Tensor
) -> Tensor:
    """Compute how much symbols vary over the devices.

    Parameters
    ----------
    sent : Signal
        Rows of the group.
    segments : Segments
        Q segments.
    scale : Tensor, float [n]
        Factor of a row before p.
    row_energy : Tensor, float64 [n, Q]
        Sum of squares of a row's scaled symbols in a segment.

    Returns
    -------
    Tensor, float64 [S, Q]
        Squared multivariate coefficient of variation: the power of the deviations from the mean
        over the devices, divided by the power of the mean. The latter is estimated without bias
        in K; the result is at least 0.
    """
    k = sent.cohort.rows_per_trial[:, None]
    total = sent.sum_by_trial(row_energy)
    both = compute_energies(sent.sum(scale[:, None])[:, 0], segments)
    total, both = segments.sum_over_scopes(total), segments.sum_over_scopes(both)
    mean = (both - total) / (k * (k - 1.0)).clamp_min(1.0)
    mean = mean.maximum(1e-30 * total).clamp_min(torch.finfo(mean.dtype).tiny)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)
