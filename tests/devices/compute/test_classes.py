"""Devices of several classes, against numbers worked by hand; drawn classes by their law."""

from __future__ import annotations

import numpy as np
import pytest
from support.made_devices import make_hardware

from otafl.devices.compute.classes import Classes

RANDOM = Classes.model_validate(
    {
        "classes": [
            {"flops_per_s": 1e9, "share": 5},
            {"flops_per_s": 2e9, "share": 3},
            {"flops_per_s": 4e9, "share": 2},
        ],
        "assignment": "random",
    }
)


@pytest.mark.exact
def test_a_list_of_speeds_goes_to_the_devices_in_order_and_round_again() -> None:
    config = Classes.model_validate({"classes": [5e9, 1e9, 3e9]})
    assert make_hardware(config, 7).flops_per_s.tolist() == [5e9, 1e9, 3e9, 5e9, 1e9, 3e9, 5e9]


@pytest.mark.exact
def test_many_equal_classes_go_in_turn() -> None:
    """Seventy classes: no round-off in the shares may reorder them."""
    given = np.arange(1.0, 71.0)
    config = Classes.model_validate({"classes": given.tolist()})
    assert np.array_equal(make_hardware(config, 140).flops_per_s, np.tile(given, 2))


@pytest.mark.exact
def test_classes_in_order_keep_to_their_shares_and_have_parts_of_their_own() -> None:
    config = Classes.model_validate(
        {
            "flops_per_cycle": 2,
            "battery_j": 10,
            "classes": [
                {"flops_per_s": 1e9, "share": 3, "battery_j": 50, "charge": 0.5},
                {"flops_per_s": 8e9, "share": 1, "kappa": 5e-27, "flops_per_cycle": 16},
            ],
        }
    )
    devices = make_hardware(config, 16)
    fast = devices.flops_per_s == 8e9
    assert fast.tolist() == [False, False, True, False] * 4
    assert np.where(fast, 5e-27, 1e-28).tolist() == devices.kappa.tolist()
    assert np.where(fast, 0.5e9, 0.5e9).tolist() == devices.frequency_hz.tolist()
    assert np.where(fast, 10.0, 50.0).tolist() == devices.battery_j.tolist()
    assert np.where(fast, 10.0, 25.0).tolist() == devices.charge_j.tolist()
    assert np.where(fast, 1.0, 5.0).tolist() == devices.restart_j.tolist()


@pytest.mark.exact
@pytest.mark.parametrize("assignment", ["random", "in_order"])
def test_the_first_devices_do_not_depend_on_how_many_there_are(assignment: str) -> None:
    made = RANDOM.model_copy(update={"assignment": assignment})
    many, few = make_hardware(made, 50, seed=4), make_hardware(made, 10, seed=4)
    assert np.array_equal(many.flops_per_s[:10], few.flops_per_s)
    assert np.array_equal(many.harvest_w[:10], few.harvest_w)


@pytest.mark.exact
def test_random_classes_follow_the_generator() -> None:
    speed = make_hardware(RANDOM, 20, seed=5).flops_per_s
    assert np.array_equal(speed, make_hardware(RANDOM, 20, seed=5).flops_per_s)
    assert not np.array_equal(speed, make_hardware(RANDOM, 20, seed=6).flops_per_s)
