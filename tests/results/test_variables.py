"""What is known of the variables of a result."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.results.variables import GUESSES, VARIABLES, get_better_direction, is_reached

pytestmark = pytest.mark.exact


def test_a_target_is_reached_at_its_value_from_the_right_side() -> None:
    values = np.array([0.4, 0.5, 0.6])
    assert is_reached("test_accuracy", values, 0.5).tolist() == [False, True, True]
    assert is_reached("test_loss", values, 0.5).tolist() == [True, True, False]


UNDIRECTED = frozenset(
    {"minimum_risk"}
    | {"majority_accuracy", "update_coherence", "update_coherence_log", "device_own_class_samples"}
    | {"level_participants", "weight_rank", "weight_density", "product_error_law", "prox_gap"}
    | {"consensus_gap", "consensus_error", "participants", "present", "diverged_round"}
    | {"majority_share", "test_samples", "own_test_samples"}
    | set(GUESSES)
    | {"updates_started", "updates_used", "timeline_device", "timeline_round"}
    | {"timeline_activity", "timeline_start_s", "timeline_end_s", "power_constraint"}
)
"""Variables that describe and do not judge."""


def test_every_variable_is_known_to_be_better_one_way_or_to_be_neutral() -> None:
    known = {"test_accuracy": "higher", "charge_j": "higher", "test_loss": "lower"}
    known |= {"device_energy_j": "lower", "sim_time_s": "lower", "uplink_symbols": "lower"}
    known |= {"test_mse": "lower", "personal_own_test_r2": "higher", "test_perplexity": "lower"}
    known |= {"aggregation_nmse": "lower", "uplink_bits": "lower", "stop_round": "lower"}
    assert {name: get_better_direction(name) for name in known} == known
    assert get_better_direction("participants") is None
    undecided = [
        name for name in VARIABLES if get_better_direction(name) is None and name not in UNDIRECTED
    ]
    assert undecided == []
