"""What is known of the variables of a result."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.results.variables import is_reached

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("name", "expected"),
    [("test_accuracy", [False, True, True]), ("test_loss", [True, True, False])],
)
def test_a_target_is_reached_at_its_value_from_the_right_side(
    name: str, expected: list[bool]
) -> None:
    values = np.array([0.4, 0.5, 0.6])
    assert np.asarray(is_reached(name, values, 0.5)).tolist() == expected
