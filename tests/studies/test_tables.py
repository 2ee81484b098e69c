"""What the scripts of the studies share: grids that are joined, small copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.marks import IN_CHECKOUT

from otafl.core import checksums
from studies.common import tables
from studies.personal import fading as personal_fading
from studies.time_and_energy import cost_by_axis

pytestmark = pytest.mark.exact

DATA = Path(__file__).parents[2] / "studies" / "time_and_energy" / "data"


@IN_CHECKOUT
def test_committed_results_have_the_bytes_that_they_were_committed_with() -> None:
    results = sorted(DATA.parents[1].glob("*/data/*.nc"))
    assert len(results) > 100
    assert [path for path in results if not checksums.check(path)] == []


def make_grid(steps: list[float], rows: list[str], best: float) -> xr.Dataset:
    """A result with rows of a joint axis; the accuracy is largest at a step."""
    values = -np.abs(np.log(steps) - np.log(best)) * np.ones((len(rows), 1))
    grid = xr.Dataset(
        {"a": (("zip", "step", "trial"), values[..., None])},
        {"zip": range(len(rows)), "step": steps, "final_round": (("zip", "step"), values * 0 + 5)},
    )
    return grid.assign_coords(dict.fromkeys(("transport", "power", "codec"), ("zip", rows)))


def test_steps_of_some_rows_join_the_rows_of_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_by_axis, "STEP", "step")
    every = make_grid([0.1, 1.0], ["b", "a", "c"], best=10)
    joined = cost_by_axis.join_rows(every, make_grid([1.0, 10.0], ["a"], best=10))
    assert joined["power"].values.tolist() == ["b", "a", "c"]
    assert joined["step"].values.tolist() == [0.1, 1.0, 10.0]
    np.testing.assert_array_equal(np.isfinite(joined["a"].values[:, 2, 0]), [False, True, False])
    least, most = tables.find_ends(joined, "step")
    np.testing.assert_array_equal(least, [0.1, 0.1, 0.1])
    np.testing.assert_array_equal(most, [1.0, 10.0, 1.0])


def test_steps_are_read_from_labels_and_ends_are_marked() -> None:
    labels = (
        "local_only(personal_learning_rate=3)",
        "apfl(learning_rate=0.1, personal_learning_rate=0.2)",
        "tdpfed(factor_learning_rate=3e-05, personal_learning_rate=0.08, penalty=2)",
    )
    assert [*map(personal_fading.read_steps, labels)] == [(0.0, 3.0), (0.2, 0.1), (0.08, 3e-5)]
    grid = [(own, sent) for own in (3.0, 2.0, 1.0) for sent in (0.3, 0.2, 0.1)]
    _, _, marks = personal_fading.describe_steps(grid)
    assert marks == [" l o", " o", " s o", " l", "", " s", " l o", " o", " s o"]
    assert personal_fading.describe_steps(grid[:3])[2] == [" l", "", " s"]
