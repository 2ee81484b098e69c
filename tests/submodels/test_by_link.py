"""Levels by the channel, against hand-worked tables and seconds."""

from __future__ import annotations

import pytest
from support.assignments import K, assign, make_cohort, make_levels

pytestmark = pytest.mark.exact


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
