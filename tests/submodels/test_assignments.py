"""Levels by the device and by the channel, against tables and seconds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.assignments import K, assign, make_cohort, make_levels

from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


def test_fixed_blocks_go_by_shares() -> None:
    assert assign(make_levels("fixed"), make_cohort()) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert assign(make_levels("fixed", shares=(1, 0, 3)), make_cohort()) == [0, 0, 2, 2, 2, 2, 2, 2]
    assert assign(make_levels("fixed", shares=(1, 1, 2)), make_cohort([6, 1])) == [2, 0]


def test_random_assignment_keeps_its_counts_and_differs_between_trials() -> None:
    drawn = make_levels("fixed", trials=2, assignment="random")
    every = list(range(K))
    got = np.reshape(assign(drawn, make_cohort(every, every)), (2, K))
    assert sorted(got[0]) == sorted(got[1]) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert (got[0] != got[1]).any()


def test_dynamic_levels_are_drawn_by_device_and_round() -> None:
    drawn = make_levels("dynamic", shares=(2, 1, 1))
    table = np.array([assign(drawn, make_cohort(), round=t) for t in range(8)])
    assert (table.std(0) > 0).all()
    assert (table.std(1) > 0).any()
    assert assign(drawn, make_cohort([6, 2]), round=3) == table[3, [6, 2]].tolist()


def test_the_fastest_have_the_largest_models() -> None:
    speeds = [5, 1, 8, 2, 7, 3, 6, 4]
    assert assign(make_levels("compute", speeds), make_cohort()) == [1, 2, 0, 2, 0, 2, 0, 1]


def test_memory_holds_parameters_gradients_momentum_and_a_minibatch() -> None:
    need = np.array([(3 * size + 5 * 10) * 8 / 2**20 for size in (400, 200, 100)])
    own = [[np.inf, need[0], need[0] * 0.999, need[1], need[1] * 0.999, need[2], 1, 1], [1.0] * K]
    held = make_levels("memory", trials=2, memory=own)
    assert assign(held, make_cohort(list(range(K)), [0])) == [0, 0, 1, 1, 2, 2, 0, 0, 0]
    with pytest.raises(UserError, match=r"memory_mb in devices.compute: a device has .* smallest"):
        make_levels("memory", memory=[*own[0][:7], need[2] * 0.999])


def test_the_best_heard_of_a_round_have_the_largest_models() -> None:
    power = [1, 8, 3, 5, 2, 7, 6, 4]
    assert assign(make_levels("channel"), make_cohort(), power) == [2, 0, 2, 1, 2, 0, 0, 1]
    assert assign(make_levels("channel"), make_cohort([0, 4, 7]), power) == [2, 1, 0]
    assert assign(make_levels("channel", trials=2), make_cohort([0, 4, 7], [1]), power) == [
        2,
        1,
        0,
        1,
    ]


def test_thresholds_are_of_the_signal_to_noise_ratio() -> None:
    heard = make_levels("channel", budget=10.0, min_snr_db=(20, 10))
    assert assign(heard, make_cohort([0, 1, 2, 3]), [9.9, 10.1, 0.99, 1.01, 1, 1, 1, 1]) == [
        1,
        0,
        2,
        1,
    ]


def test_the_largest_model_in_time_is_trained() -> None:
    # 10 samples of so many operations each; 32 bits a parameter at 1000/n log2(1 + snr) a second
    alone = 400 * 10 / 100 + 32 * 400 / (1000 * 2)
    shared = 200 * 10 / 100 + 32 * 200 / (500 * 2)
    speeds = [100.0] * K
    assert assign(
        make_levels("deadline", speeds, seconds=alone * 1.001), make_cohort([0]), 3.0
    ) == [0]
    assert assign(
        make_levels("deadline", speeds, seconds=alone * 0.999), make_cohort([0]), 3.0
    ) == [1]
    two = make_cohort([0, 5])
    assert assign(make_levels("deadline", speeds, seconds=shared * 1.001), two, 3.0) == [1, 1]
    assert assign(make_levels("deadline", speeds, seconds=shared * 0.999), two, 3.0) == [2, 2]
    assert assign(make_levels("deadline", speeds, seconds=1e-3), two, 3.0) == [2, 2]
