"""Reduced copies of results keep what the pages need.

Tables between markers are compared by `tests/studies/test_write_tables.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize(
    ("name", "diverged"),
    [
        ("personal_fading/data/personal_fading", 2050),
        ("personal_fading/data/personal_fading_server", 180),
        ("personal_fading/data/personal_fading_own_steps", 1622),
        ("personal_fading/data/personal_fading_own_steps_ends", 1408),
        ("reuse/data/reuse", 1),
    ],
)
def test_reduced_results_keep_the_round_of_divergence(name: str, diverged: int) -> None:
    with xr.open_dataset(STUDIES / f"{name}.nc") as result:
        assert int(result["diverged_round"].notnull().sum()) == diverged
