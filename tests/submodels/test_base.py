"""What all assignments of levels have in common: what a scenario may ask, and every one of the
table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import scenario
from support.assignments import SIZES, K, make_cohort, make_levels, make_state

from otafl.core import registry
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact

FIELDS: dict[str, dict[str, Any]] = {"deadline": {"seconds": 1.0}}


@pytest.mark.parametrize("name", registry.list_names("capacity_levels"))
def test_every_row_has_a_level(name: str) -> None:
    """Of the method's, and the same whoever else there is in the other trial."""
    assigned = make_levels(name, trials=2, **FIELDS.get(name, {}))
    whole, power = make_cohort([0, 3, 5], [1, 2]), torch.arange(1.0, K + 1)
    level = assigned.assign_levels(whole, 4, make_state(power, 2))
    assert level.dtype == torch.int64
    assert level.shape == (5,)
    assert ((level >= 0) & (level < len(SIZES))).all()
    alone = assigned.assign_levels(make_cohort([0, 3, 5], []), 4, make_state(power, 2))
    assert torch.equal(alone, level[:3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"shares": [1, 1]},
            "devices.capacity_levels.shares: got 2 values; expected 4",
        ),
        ({"shares": [0, 0, 0, 0]}, "devices.capacity_levels.shares: all are 0"),
        (
            {"name": "channel", "min_snr_db": [1]},
            "devices.capacity_levels.min_snr_db: got 1 values; expected 3",
        ),
    ],
)
def test_shares_must_fit_the_method(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        scenario({"algorithm": "heterofl", "devices.capacity_levels": settings})


def test_methods_of_one_size_have_no_levels() -> None:
    with pytest.raises(ScenarioError, match=r"'fedavg' has models of one size.*heterofl"):
        scenario({"devices.capacity_levels": "dynamic"})
