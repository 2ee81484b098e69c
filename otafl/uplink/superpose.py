"""Superpose what is on air: sum_k c_k x_k + n, one weighted reduction of real numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.uplink.on_air import OnAir
from otafl.uplink.segments import segment_sums


def superpose(on_air: OnAir, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the rows as they arrive and the receiver's noise, reading the signal once.

    Parameters
    ----------
    on_air : the transmission of rows [n, P].
    noise : [S, P] standard normal.

    Returns
    -------
    The estimate [S, P], and the error-free aggregate [S, P] of what was sent.
    """
    signal, segments, spread = on_air.signal, on_air.segments, on_air.variance.sqrt()
    exact = signal.exact[:, None].expand(-1, len(segments.bounds))
    gain = on_air.row_gain
    columns = [gain.real, exact]
    if segments.halves == 2:
        columns.append(gain.imag)
    together = torch.stack(columns, 2)
    sums = [segment_sums(signal, part, together, segments) for part in segments.parts(signal.x)]
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
    estimate += noise * segments.at_reals(spread, signal.reals)
    return estimate, torch.cat([one[:, 1], two[:, 1]], 1)
