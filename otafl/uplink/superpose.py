"""Superposition of all transmitted signals: one weighted reduction of real numbers, and noise."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.rng import Streams
from otafl.uplink.impairments.impairments import NOISE
from otafl.uplink.on_air import OnAir
from otafl.uplink.segments import sum_segments


def draw_noise(on_air: OnAir, streams: Streams) -> Tensor:
    """Draw the receiver's noise of a group, standard normal [S, P]."""
    sent = on_air.sent
    return streams.draw_normal(NOISE / sent.index, on_air.slot.round, (sent.num_coordinates,))


def superpose(on_air: OnAir, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Sum the rows with their effective gains and the receiver's noise, reading the signal once.

    Parameters
    ----------
    on_air : OnAir
        Rows x_k [n, P] with their effective gains c_k.
    noise : Tensor, float [S, P]
        Standard normal noise.

    Returns
    -------
    tuple of Tensor, float [S, P] each
        The estimate, and the error-free aggregate.

    Notes
    -----
    The estimate of a weighted mean, with noise n of variance N / eta, is

    .. math::

        \frac{1}{W} \sum_k c_k w_k x_k + \frac{n}{K W}
    """
    signal, segments, spread = on_air.signal, on_air.segments, on_air.noise_std
    exact = signal.exact[:, None].expand(-1, len(segments.bounds))
    gain = on_air.row_gain
    columns = [gain.real, exact]
    if segments.halves == 2:
        columns.append(gain.imag)
    together = torch.stack(columns, 2)
    sums = [sum_segments(signal, part, together, segments) for part in segments.parts(signal.x)]
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
    estimate += noise * on_air.expand(spread)
    return estimate, torch.cat([one[:, 1], two[:, 1]], 1)
