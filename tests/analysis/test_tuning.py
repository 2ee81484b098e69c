"""Choosing a step size after a sweep."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import otafl


def result() -> xr.Dataset:
    """Two policies, three step sizes, two trials, two records; the validation accuracy at the end
    is best at 0.1 for `a`, and for `b` at 0.3 but for a trial that diverged there."""
    end = np.array([[[0.5, 0.5], [0.8, 0.6], [0.6, 0.6]], [[0.4, 0.4], [0.6, 0.6], [0.9, np.nan]]])
    start = 1.0 - np.nan_to_num(end)
    dims = ("power", "learning_rate", "trial")
    return xr.Dataset(
        {
            "validation_accuracy": ((*dims, "round"), np.stack([start, end], -1)),
            "test_accuracy": ((*dims, "round"), np.stack([start, end - 0.1], -1)),
            "final_round": ((), 10),
        },
        {"power": ["a", "b"], "learning_rate": [0.03, 0.1, 0.3], "round": [0, 10]},
    )


def test_each_point_gets_its_own_best_value() -> None:
    best = otafl.select_tuned(result(), over="learning_rate")
    assert "learning_rate" not in best.dims
    assert best.learning_rate.values.tolist() == [0.1, 0.1]
    np.testing.assert_allclose(
        best.test_accuracy.isel(round=-1).transpose("power", "trial"), [[0.7, 0.5], [0.5, 0.5]]
    )


@pytest.mark.parametrize("options", [{"over": "lr"}, {"over": "learning_rate", "by": "loss"}])
def test_what_is_missing_is_named(options: dict[str, str]) -> None:
    with pytest.raises(otafl.UserError, match=r"tuned: the result has no '(lr|loss)'; it has"):
        otafl.select_tuned(result(), **options)
