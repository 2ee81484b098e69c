"""Accuracies of the sizes of model, or levels, in results of studies/fedhm."""

from __future__ import annotations

import xarray as xr

SPLITS = ("iid", "dirichlet")
METHODS = (
    "Split-Mix",
    "HeteroFL",
    "HeteroFL-V2",
    "HeteroFL-V3",
    "FedAvg, slim",
    "FedHM",
    "FedRolex",
)
TESTS_EVERY = 5
"""Rounds between the tests that are compared, although some trials are tested more often."""


def select_tests(ds: xr.Dataset) -> xr.Dataset:
    """Select the rounds whose tests are compared."""
    return ds.sel(round=ds["round"] % TESTS_EVERY == 0)


def find_best(one: xr.Dataset) -> xr.DataArray:
    """Best accuracy over rounds in percent [trial, level] of the levels that there are, the largest
    first; a trial that diverged counts as a guess."""
    accuracy = 100.0 * one["level_test_accuracy"]
    best = accuracy.sel(round=slice(1, None)).max("round")
    guess = (100.0 * one["accuracy_guess"]).astype(best.dtype)
    best = best.where(one["diverged_round"].isnull(), guess)
    best = best.dropna("level", how="all").transpose("trial", "level")
    return xr.DataArray(best.values, dims=("trial", "level"))


def format_levels(best: xr.DataArray) -> str:
    """Means over trials of the levels of accuracies [trial, level] ± the largest deviation."""
    means = " / ".join(f"{mean:.2f}" for mean in best.values.mean(0))
    return f"{means} ± {best.values.std(0, ddof=1).max():.2g}"


def is_done(one: xr.Dataset) -> bool:
    """Whether the point has run."""
    return bool(one["level_test_accuracy"].notnull().any())
