"""What counts as a difference between two collections of results."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "reference.py"))
FIRST = np.array([1.0, np.nan, -100.0, np.inf])


@pytest.mark.parametrize(
    ("second", "tolerance", "same"),
    [
        ([1.0, np.nan, -100.0, np.inf], 0.0, True),
        ([1.0 + 1e-9, np.nan, -100.0, np.inf], 0.0, False),
        ([1.0009, np.nan, -100.0, np.inf], 1e-5, True),  # within 1e-5 of 100
        ([1.0011, np.nan, -100.0, np.inf], 1e-5, False),
        ([1.0, 0.0, -100.0, np.inf], 1.0, False),
        ([1.0, np.nan, -100.0, -np.inf], 1.0, False),
        ([1.0, np.nan, np.nan, np.inf], 1.0, False),
        ([[1.0, np.nan, -100.0, np.inf]], 1.0, False),
    ],
)
def test_numbers_agree_to_a_share_of_the_largest(second: Any, tolerance: float, same: bool) -> None:
    comparison = SCRIPT["Comparison"](tolerance)
    assert comparison.is_same_array(FIRST, np.array(second)) is same
    models = [{"w": torch.from_numpy(array)} for array in (FIRST, np.array(second))]
    assert comparison.is_same(*models) is same


def test_draws_agree_exactly_at_any_tolerance() -> None:
    comparison = SCRIPT["Comparison"](1.0)
    assert not comparison.is_same_array(np.array([1, 2]), np.array([1, 3]))
    assert not comparison.is_same_array(np.array(["a"]), np.array(["b"]))
