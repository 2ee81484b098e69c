"""Sum symbols that do not arrive at the same time, and estimate the sum of those that belong
together (Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
Computation").

Pulses are rectangular. Sorted by delay, d_1 = 0 <= .. <= d_J < 1, a symbol period has J stretches
between one device's symbol edge and the next, l_j = d_{j+1} - d_j long (d_{J+1} = 1), and a
whitened matched filter gives one sample for each:

    r_j(i) = sqrt(l_j) [ sum_{k <= j} v_k(i) + sum_{k > j} v_k(i - 1) ] + n_j(i)

with noise n_j of the variance N of a whole symbol. The last one alone has all symbols of the same
number (aligned sample): over sqrt(l_J), it is their sum with noise N / l_J.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.uplink.signal import Signal

WINDOW = 2
"""Periods before and after a symbol that its estimate looks at; later ones say next to nothing."""


def compute_aligned_noise(sent: Signal, delay: Tensor, on: Tensor) -> Tensor:
    """Return what the aligned sample's noise is larger by, 1 / (1 - largest delay) [S], from delays
    [n] after the first device."""
    latest = delay.new_zeros(sent.cohort.num_trials)
    latest = latest.scatter_reduce(0, sent.cohort.trial, delay * on, "amax")
    return 1.0 / (1.0 - latest)


class SampleSums:
    """Sample a cohort's rows with these delays [n]. Trials with fewer rows than J, the most of any,
    are filled with silent rows of delay 0, whose stretches have no length."""

    def __init__(self, cohort: Cohort, delay: Tensor) -> None:
        self.trials = cohort.num_trials
        self.most = max(1, *cohort.counts)
        rows_before = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
        slot = torch.arange(cohort.num_rows, device=delay.device) - rows_before[cohort.trial]
        table = delay.new_zeros(self.trials, self.most)
        table[cohort.trial, slot] = delay
        ordered, order = table.sort(dim=1, stable=True)
        rank = order.argsort(1)[cohort.trial, slot]
        self._place = cohort.trial * self.most + rank
        ends = torch.cat([ordered[:, 1:], torch.ones_like(ordered[:, :1])], 1)
        self.root_length = (ends - ordered).sqrt()  # [S, J]

    def grid(self, values: Tensor) -> Tensor:
        """Return values [n, ...] of the rows as [S, J, ...], in the order of their delays."""
        table = values.new_zeros(self.trials * self.most, *values.shape[1:])
        table.index_copy_(0, self._place, values)
        return table.view(self.trials, self.most, *values.shape[1:])

    def sample(self, rows: Tensor) -> Tensor:
        """Return the samples [S, J, L] of rows v [n, L], without noise."""
        known = self.grid(rows).cumsum(1)  # sum over k <= j
        rest = known[:, -1:] - known
        rest = torch.nn.functional.pad(rest[..., :-1], (1, 0))
        return self.root_length[..., None] * (known + rest)

    def estimate(self, observed: Tensor, taps: Tensor, column: Tensor) -> Tensor:
        """Return the filter's output [S, L] from samples [S, J, L], with the taps
        [S, Q, 2 W + 1, J] of each column's segment [L]."""
        out = torch.zeros_like(observed[:, 0])
        length = observed.shape[2]
        for lag in range(-WINDOW, WINDOW + 1):
            first, stop = max(0, -lag), min(length, length - lag)
            if first < stop:
                tap = taps[:, column[first:stop], lag + WINDOW].mT  # [S, J, L']
                seen = observed[:, :, first + lag : stop + lag]
                out[:, first:stop] += (tap * seen).sum(1)
        return out


def lmmse_filter(samples: SampleSums, power: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """Return the taps of the linear MMSE estimate of sum_k weight_k v_k(i) from the samples of
    periods i - W .. i + W.

    Parameters
    ----------
    samples : of n rows, J in a symbol period.
    power : [n, Q], variance of v_k, independent over devices and symbols.
    weight : [n, Q].
    noise : [S, Q], variance N of a whole symbol's sample.

    Returns
    -------
    [S, Q, 2 W + 1, J]
    """
    power, weight = samples.grid(power).mT, samples.grid(weight).mT  # [S, Q, J]
    root = samples.root_length[:, None]
    prefix = power.cumsum(-1)
    total = prefix[..., -1:, None]
    column, row = prefix[..., :, None], prefix[..., None, :]
    least, most = torch.minimum(column, row), torch.maximum(column, row)
    scale = root[..., :, None] * root[..., None, :]
    same = scale * (least + total - most)  # r(i) with r(i)
    before = scale * (row - column).clamp_min(0.0)  # r_j(i) with r_j'(i - 1): k > j and k <= j'
    trials, segments, count = power.shape
    lags = 2 * WINDOW + 1
    covariance = power.new_zeros(trials, segments, lags, count, lags, count)
    for lag in range(lags):
        covariance[:, :, lag, :, lag] = same
        if lag:
            covariance[:, :, lag, :, lag - 1] = before
            covariance[:, :, lag - 1, :, lag] = before.mT
    covariance = covariance.flatten(4).flatten(2, 3)
    known = (weight * power).cumsum(-1)
    cross = power.new_zeros(trials, segments, lags, count)
    cross[:, :, WINDOW] = root * known
    cross[:, :, WINDOW + 1] = root * (known[..., -1:] - known)
    eye = torch.eye(lags * count, dtype=power.dtype, device=power.device)
    taps = torch.linalg.solve(
        covariance + noise[..., None, None] * eye, cross.flatten(2)[..., None]
    )
    return taps.view(trials, segments, lags, count)
