"""Policies with a number that may be null, in a sweep over null and numbers."""

from __future__ import annotations

from typing import Any

import xarray as xr

import otafl


def test_null_and_a_number_do_not_share_a_stack() -> None:
    """The number counts at its point, whatever the others have."""
    power, field, number = "budget_paced", "energy_db", -6.0
    tree: dict[str, Any] = {
        "name": "nulls",
        "devices": {"count": 3},
        "training": {"rounds": 2, "eval_samples": 50},
        "channel": {"name": "rayleigh", "snr_db": 0},
    }
    together = otafl.run(tree | {"power": power, "sweep": {f"power.{field}": [None, number]}})
    losses = []
    for place, value in enumerate((None, number)):
        alone = otafl.run(tree | {"power": {"name": power, field: value}})["test_loss"]
        xr.testing.assert_allclose(together["test_loss"][{field: place}].drop_vars(field), alone)
        losses.append(float(alone[{"round": -1}].item()))
    assert losses[0] != losses[1]
