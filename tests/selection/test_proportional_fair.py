"""Proportional fairness against a twin written out, and by its laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from support.fading_choices import LEVEL, select_devices
from support.selections import ALL, DOUBLE, K, S, make_selection, make_state, to_sets


@pytest.mark.twin
def test_proportional_fair_twin() -> None:
    windows = [4.0, 50.0]
    made = make_selection("proportional_fair", window=windows)
    generator = torch.Generator().manual_seed(0)
    gain = torch.tensor([[1.0, 0.1, 5.0, 2.0, 0.5], [1.0, 1.0, 1.0, 20.0, 0.01]], dtype=DOUBLE)
    budget = np.arange(1.0, K + 1) * np.array([[1.0], [2.0]])
    throughput = np.log2(1 + budget * gain.numpy()) * 2 / K
    for t in range(60):
        power = torch.empty(S, K, dtype=DOUBLE).exponential_(generator=generator)
        free = ALL.copy()
        free[0, t % K] = False
        chosen = made.select_devices(free, 2, t, make_state(power, gain))
        for s in range(S):
            rate = np.log2(1 + budget[s] * gain[s].numpy() * power[s].numpy())
            order = sorted(np.nonzero(free[s])[0], key=lambda k: -rate[k] / throughput[s, k])
            assert to_sets(chosen)[s] == sorted(order[:2])
            for k in range(K):
                served = rate[k] if chosen[s, k] else 0.0
                throughput[s, k] += (served - throughput[s, k]) / windows[s]


@pytest.mark.law
def test_proportional_fair_serves_all_alike() -> None:
    """At low SNR the rate is proportional to the gain, so R / T is scale-free: devices of mean
    gains 20 dB apart are each chosen a third of the time, where the best channel is all but always
    the strongest. Per trial, counts over 300 rounds after 100 to settle; selections repel each
    other over the window, so binomial spread bounds theirs: 20 trials, all devices within 4.9
    standard deviations (level 1e-4 of 60 counts)."""
    gain = 1e-3 * torch.tensor([0.01, 0.1, 1.0])
    who, power, mean = select_devices("proportional_fair", 1, gain, window=50.0)
    late, served = who[100:].mean(0), (power * who)[100:].sum(0) / who[100:].sum(0)
    bound = stats.norm.isf(LEVEL / 120) * (2 / 9 / 300) ** 0.5
    assert np.abs(late - 1 / 3).max() < bound
    # and each is served on its peaks: the best of three relative gains has mean 1 + 1/2 + 1/3
    assert (served / mean).mean() == pytest.approx(11 / 6, rel=0.05)
    best, _, _ = select_devices("best_channel", 1, gain)
    assert best.mean((0, 1))[2] > 0.85
