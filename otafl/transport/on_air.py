"""A group on air: what was sent and how it is received, and what the aggregation error follows
from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, Coefficients
from otafl.transport.bounded import SentPart
from otafl.transport.segments import Segments, segment_sums
from otafl.transport.superpose import Signal


@dataclass(frozen=True)
class OnAir:
    """One group's transmission.

    scale: [n] what a row is multiplied with before p, K w_k for a mean. unit: [S, Q] what the
    receiver multiplies Re(y) / sqrt(eta) with. m: [S, Q, K] mean power of a normalised stretch
    before p; energy: [S, Q, K] sum of squares of a segment before p. h, h_hat: [S, Q, K] scalar
    channels, true and believed. noise: [S, Q] variance of one received real. gain, believed: [S, Q,
    K] complex h p / sqrt(eta), true and as the server believes. active_rows: [n, Q]. weight: [S, Q]
    on air. part: what crashing devices have sent, None where none do.
    """

    segments: Segments
    scale: Tensor
    unit: Tensor
    m: Tensor
    energy: Tensor
    coefficients: Coefficients
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    gain: Tensor
    believed: Tensor
    active_rows: Tensor
    weight: Tensor
    part: SentPart | None


def exact_weight(sent: Signal) -> Tensor:
    """[n]: a row's coefficient in the error-free aggregate."""
    return sent.weight if sent.linear else torch.ones_like(sent.weight)


def rows_of_unit(sent: Signal, on_air: OnAir) -> Tensor:
    """[n, Q]: a row's scale before p times what the receiver multiplies with."""
    return on_air.scale[:, None] * on_air.unit[sent.cohort.trial]


def superposed(
    sent: Signal, segments: Segments, coefficient: Tensor, spread: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """The estimate [S, P] and the error-free aggregate [S, P] from a row's complex gains [n, Q],
    the noise's root variance [S, Q] and standard normal noise [S, P]. The signal is read once."""
    exact = exact_weight(sent)[:, None].expand(-1, len(segments.bounds))
    columns = [coefficient.real, exact]
    if segments.halves == 2:
        columns.append(coefficient.imag)
    together = torch.stack(columns, 2)
    sums = [segment_sums(sent, part, together, segments) for part in segments.parts(sent.x)]
    if len(sums) == 1:
        estimate, target = sums[0][:, 0], sums[0][:, 1]
        for q, (first, stop) in enumerate(segments.bounds):
            estimate[:, first:stop].addcmul_(noise[:, first:stop], spread[:, q, None])
        return estimate, target
    one, two = sums
    width = two.shape[2]  # the second quadrature may be one symbol short
    one[:, 0, :width] -= two[:, 2]
    two[:, 0] += one[:, 2, :width]
    estimate = torch.cat([one[:, 0], two[:, 0]], 1)
    of_columns = spread[:, segments.of_columns(spread.device)]
    estimate += noise * torch.cat([of_columns, of_columns[:, :width]], 1)
    return estimate, torch.cat([one[:, 1], two[:, 1]], 1)


def less(sent: Signal, segments: Segments, means: Tensor) -> Signal:
    """The signal without the means [n, Q] of its segments."""
    of_columns = means[:, segments.of_columns(means.device)]
    both = torch.cat([of_columns] * segments.halves, 1)[:, : sent.reals]
    return replace(sent, x=sent.x - both)


def of_means(
    sent: Signal, segments: Segments, means: Tensor, scale: Tensor, on_air: OnAir | None
) -> Tensor:
    """[S, P]: sum_k scale_k means_k at every real, as received from the active devices of a
    transmission, or from all."""
    rows = scale[:, None] * means
    if on_air is not None:
        rows = rows * on_air.active_rows
    total = rows.new_zeros(sent.cohort.trials, rows.shape[1])
    total.index_add_(0, sent.cohort.trial, rows)
    if on_air is not None:
        total = total * on_air.unit
    of_columns = total[:, segments.of_columns(total.device)]
    return torch.cat([of_columns] * segments.halves, 1)[:, : sent.reals]


def reached_weight(sent: Signal, on_air: OnAir) -> Tensor:
    """[S, P]: the weight on air that knows each coordinate."""
    assert sent.mask is not None
    weight = (sent.weight[:, None] * on_air.active_rows)[..., None]
    parts = [
        segment_sums(sent, part, weight, on_air.segments)[:, 0]
        for part in on_air.segments.parts(sent.mask)
    ]
    return torch.cat(parts, 1)


def saved(index: int, sent: Signal, on_air: OnAir, gram: bool) -> Blocks:
    """What the aggregation error follows from, given the Gram matrices of the signals: in a segment
    it is a^H Gram a of the deviations a_k = g_k w_k / W - w_k, plus the noise's part."""
    out = {
        f"h/{index}": on_air.h,
        f"h_hat/{index}": on_air.h_hat,
        f"p/{index}": on_air.coefficients.p,
        f"eta/{index}": on_air.coefficients.eta,
        f"c/{index}": on_air.gain.real,
        f"active/{index}": on_air.coefficients.active,
        f"m/{index}": on_air.m,
        f"noise/{index}": on_air.noise,
        f"weight/{index}": sent.grid(sent.weight),
    }
    if on_air.part is not None:
        out[f"sent/{index}"] = on_air.part.symbols
    if gram:
        parts = on_air.segments.parts(sent.grid(sent.x).flatten(0, 1))
        grams = []
        for first, stop in on_air.segments.bounds:
            rows = parts[0][:, first:stop]
            if len(parts) == 2:
                second = parts[1][:, first:stop]
                missing = rows.shape[1] - second.shape[1]
                rows = torch.complex(rows, torch.nn.functional.pad(second, (0, missing)))
            rows = rows.unflatten(0, on_air.gain.shape[::2])
            grams.append(torch.matmul(rows.conj(), rows.mT))
        out[f"gram/{index}"] = torch.stack(grams, 1)
    return out
