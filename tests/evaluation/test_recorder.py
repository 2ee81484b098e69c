"""What is recorded of populations that are too large for a record of each device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract.small import points
from support.rounding import SINGLE, assert_agree

from otafl.core.errors import UserError
from otafl.results.dataset import Record
from otafl.running.stack_run import run_stack

pytestmark = pytest.mark.exact

KEYS: dict[str, Any] = {
    "algorithm": "ditto",
    "data.own_test": True,
    "data.partition": "iid",
    "devices.compute": {"name": "fixed", "battery_j": 1000.0},
    "training.class_losses": True,
    "training.stop_at": {"personal_own_test_accuracy": 0.054},
}


def recorded(bound: int) -> Record:
    return run_stack(points(KEYS | {"output.each_device_up_to": bound}))


def test_joules_are_sums_and_other_things_of_devices_are_left_out() -> None:
    each, sums = recorded(4).variables, recorded(3).variables
    own = {name for name, value in each.items() if value.ndim > 3 or "class_samples" in name}
    assert {"charge_j", "tx_power_w", "device_personal_own_class_loss"} < own
    assert sums.keys() == (each.keys() - own) | {
        "tx_energy_j",
        "compute_energy_j",
        "device_energy_j",
    }
    for name in ("tx_energy_j", "compute_energy_j", "device_energy_j"):
        assert_agree(sums[name], each[name].sum(3), name, SINGLE)
    for name in each.keys() - own - {"wall_time_s"}:
        np.testing.assert_array_equal(sums[name], each[name], err_msg=name)
    assert (sums["stop_round"] > 0).any()


def test_links_of_too_many_devices_are_refused() -> None:
    keys = {"output.save_link": True, "output.each_device_up_to": 3}
    with pytest.raises(
        UserError, match=r"output.save_link: saves the channel of each of 4 devices"
    ):
        points(keys)
    assert points(keys | {"output.each_device_up_to": 4})
