"""Every variable is judged, or known to be neutral."""

from __future__ import annotations

from otafl.plots.directions import UNDIRECTED, get_better_direction
from otafl.results.variables import VARIABLES


def test_every_variable_is_known_to_be_better_one_way_or_to_be_neutral() -> None:
    known = {"test_accuracy": "higher", "charge_j": "higher", "test_loss": "lower"}
    known |= {"device_energy_j": "lower", "sim_time_s": "lower", "uplink_symbols": "lower"}
    known |= {"aggregation_nmse": "lower", "uplink_bits": "lower", "stop_round": "lower"}
    assert {name: get_better_direction(name) for name in known} == known
    assert get_better_direction("participants") is None
    undecided = [
        name for name in VARIABLES if get_better_direction(name) is None and name not in UNDIRECTED
    ]
    assert undecided == []
