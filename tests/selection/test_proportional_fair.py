"""Proportional fairness against a twin written out, and by its laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
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
