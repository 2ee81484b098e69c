"""Selections by the channel, by hand and against a twin written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.small import engine, equal, run
from support.selections import (
    ALL,
    DOUBLE,
    FLAT,
    K,
    S,
    make_cohort,
    make_selection,
    make_state,
    to_sets,
)

from otafl.core.rng import Streams


@pytest.mark.exact
def test_best_channel() -> None:
    """By gain times mean |h|^2 over antennas and groups; ties go to the lower number."""
    power = torch.tensor([[3.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    made = make_selection("best_channel")
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power))) == [[0, 3], [3, 4]]
    near = torch.tensor([1.0, 10.0, 1.0, 1.0, 0.1])
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power, near))) == [[0, 1], [1, 3]]
    free = ALL.copy()
    free[:, 3] = False
    assert to_sets(made.select_devices(free, 2, 0, make_state(power))) == [[0, 4], [2, 4]]
    cells = torch.ones(S, K, 2, 1, 3)
    cells[:, 1, 1, 0, 2] = 9.0
    cells[:, 4, 0, 0, 0] = 8.0
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(cells))) == [[1, 4], [1, 4]]


@pytest.mark.exact
def test_best_channel_as_it_is_believed() -> None:
    believed = make_state(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])).h
    true = make_state(torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]).expand(S, -1))
    assert to_sets(make_selection("best_channel", believed).select_devices(ALL, 2, 0, true)) == [
        [3, 4],
        [0, 1],
    ]


@pytest.mark.exact
def test_pilots_of_those_who_are_not_busy() -> None:
    """Three of five are free in the first trial and all in the second; three and two are chosen."""
    made = make_selection("best_channel")
    made.setup.csi.num_pilot_symbols = 7  # type: ignore[misc]
    free = ALL.copy()
    free[0, :2] = False
    for available, expected in ((free, [0.0, 3 * 7.0]), (None, [2 * 7.0, 3 * 7.0])):
        told = made.count_overhead_symbols(available, make_cohort())
        assert told is not None
        assert told.tolist() == expected


@pytest.mark.exact
def test_threshold() -> None:
    """SNR = budget times gain: 1, 2, .. 5 in the first trial and twice that in the second; 3 dB is
    1.995 and 7 dB 5.01."""
    made = make_selection("threshold", min_snr_db=[3.0, 7.0])
    assert to_sets(made.select_devices(ALL, K, 0, FLAT)) == [[1, 2, 3, 4], [2, 3, 4]]
    busy = ALL.copy()
    busy[0, 2] = False
    assert to_sets(made.select_devices(busy, K, 0, FLAT)) == [[1, 3, 4], [2, 3, 4]]
    assert to_sets(made.select_devices(ALL, K, 0, make_state(torch.full((S, K), 0.1)))) == [[], []]
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(made.select_devices(ALL, 2, round, FLAT))
        for trial, heard in enumerate([[1, 2, 3, 4], [2, 3, 4]]):
            order = sorted(heard, key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.exact
def test_a_round_in_which_nobody_takes_part() -> None:
    """Nothing is learned or sent; time passes for the broadcast."""
    keys = {"devices.selection": {"name": "threshold", "min_snr_db": 200.0}}
    one = engine(keys)
    before = {name: block.clone() for name, block in one.server.items()}
    run(one, 3)
    equal(one.server, before)
    taken = one.means.take()
    for name in ("participants", "uplink_symbols", "side_symbols", "airtime_s", "radio_j"):
        assert not taken[name].any()
    assert not one.parts.clock.compute_spent_j().any()
    seconds = 3 * 32 * sum(block[0].numel() for block in before.values()) / 1e7
    np.testing.assert_allclose(one.parts.clock.get_time_s(), seconds, rtol=1e-12)


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
