"""What the page about FedRLR claims of the committed results, and what its scripts compute.

Its tables are compared by `tests/studies/test_write_tables.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import otafl
from studies.common.tables import count_ideal_symbols
from studies.fedrlr import analyse

ROOT = Path(__file__).parents[2]
DATA = ROOT / "studies" / "fedrlr" / "data"


def test_it_reaches_what_was_asked() -> None:
    """75 % after 75 rounds, 82 % after 1000; at 25 dB within a point of no errors, and at 0 dB
    within one of 25 dB, after 75 rounds only at an equal step."""
    steps = otafl.open_results(DATA / "fedrlr_plus.nc")
    runs = otafl.select_tuned(steps, over="learning_rate")
    mean = runs["test_accuracy"].mean("trial").transpose("zip", "round")
    assert (mean.sel(round=75) >= 0.75).all()
    assert (mean.sel(round=1000) >= 0.82).all()
    _, at_25, exact = mean.sel(round=75).values
    assert at_25 > exact - 0.01
    at_0, at_25, exact = mean.sel(round=1000).values
    assert abs(at_0 - at_25) < 0.01
    assert min(at_0, at_25) > exact - 0.01
    at_0, at_25, _ = steps["test_accuracy"].sel(round=75, learning_rate=0.1).mean("trial").values
    assert abs(at_0 - at_25) < 0.01


def test_biases_count_in_all_rows() -> None:
    """522 more than the weights' reals wherever biases come free of error."""
    ds = otafl.open_results(DATA / "fedrlr_fig8.nc")
    counted = otafl.compute_symbols_per_round(ds).mean("trial") + count_ideal_symbols(ds, 522)
    whole, thin, eight, many = 268_800 + 522, 7_272 + 522, 8 * 1_050 + 522, 200 * 1_050 + 522
    expected = [whole, *6 * [thin], whole, eight, many, eight, many, whole, 7_284]
    assert counted.values.tolist() == expected


@pytest.mark.parametrize(
    ("rounds", "said", "median"),
    [
        ([2, 4, 9], "4 (2 to 9)", 4.0),
        ([2, 4, np.nan], "4 (2 to never)", 4.0),
        ([2, np.nan, np.nan], "never (2 to never)", np.inf),
        ([2, 4, np.nan, np.nan], "never (2 to never)", np.inf),
        ([np.nan, np.nan], "never", np.inf),
        ([3, 3], "3", 3.0),
    ],
)
def test_a_trial_that_reaches_no_target_takes_infinitely_many_rounds(
    rounds: list[float], said: str, median: float
) -> None:
    assert analyse.format_reached(xr.DataArray(rounds, dims="trial")) == (said, median)
