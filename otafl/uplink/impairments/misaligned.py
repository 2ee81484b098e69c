"""Sums of symbols that arrive at different times, and estimates of sums of simultaneous ones.

Pulses are rectangular. With delays sorted as d_1 = 0 <= .. <= d_J < 1, a symbol period has J
stretches between the symbol edges of consecutive devices, of length l_j = d_{j+1} - d_j with
d_{J+1} = 1. A whitened matched filter gives one sample for each stretch:

    r_j(i) = sqrt(l_j) [ sum_{k <= j} v_k(i) + sum_{k > j} v_k(i - 1) ] + n_j(i)

The noise n_j has the variance N of a whole symbol. Only the last sample contains all symbols of the
same number (aligned sample). Divided by sqrt(l_J), it is their sum with noise N / l_J.

Reference: Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
Computation".
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.uplink.signal import Signal

WINDOW = 2
"""Periods before and after a symbol that its estimate uses; others contribute next to nothing."""


def compute_aligned_noise(sent: Signal, delay: Tensor, on: Tensor) -> Tensor:
    """Compute the noise variance of the aligned sample relative to N, 1 / (1 - largest delay).

    Parameters
    ----------
    sent : Signal
        The n rows.
    delay : Tensor, float [n]
        Delays after the first device, in symbols.
    on : Tensor, bool [n]
        Rows on air.

    Returns
    -------
    Tensor, float [S]
        The ratio.
    """
    latest = delay.new_zeros(sent.cohort.num_trials)
    latest = latest.scatter_reduce(0, sent.cohort.trial, delay * on, "amax")
    return 1.0 / (1.0 - latest)


class SampleSums:
    """Samples of a cohort's rows with delays [n].

    Trials with fewer rows than J, the largest number, are padded with silent rows of delay 0, whose
    stretches have no length.
    """

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
        """Compute the samples [S, J, L] of rows v [n, L], without noise."""
        known = self.grid(rows).cumsum(1)  # sum over k <= j
        rest = known[:, -1:] - known
        rest = torch.nn.functional.pad(rest[..., :-1], (1, 0))
        return self.root_length[..., None] * (known + rest)

    def estimate(self, observed: Tensor, taps: Tensor, column: Tensor) -> Tensor:
        """Filter samples [S, J, L] with the taps [S, Q, 2 W + 1, J] of each column's segment.

        Parameters
        ----------
        observed : Tensor, float [S, J, L]
            Samples with noise.
        taps : Tensor, float [S, Q, 2 W + 1, J]
            Taps of `lmmse_filter`.
        column : Tensor, int64 [L]
            Segment of each column.

        Returns
        -------
        Tensor, float [S, L]
            The estimate.
        """
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
    """Compute the taps of the linear MMSE estimate of sum_k weight_k v_k(i).

    It uses the samples of the periods i - W .. i + W.

    Parameters
    ----------
    samples : SampleSums
        Samples of n rows, J in a symbol period.
    power : Tensor, float [n, Q]
        Variance of v_k, independent over devices and symbols.
    weight : Tensor, float [n, Q]
        Weights of the sum.
    noise : Tensor, float [S, Q]
        Variance N of a whole symbol's sample.

    Returns
    -------
    Tensor, float [S, Q, 2 W + 1, J]
        The taps.
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
