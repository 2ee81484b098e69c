"""Compare points of a sweep in pairs, under common random numbers.

Trial i of two points has the same data split, the same fading and the same noise, so a difference
between them is taken trial by trial: what the trials share drops out, and fewer of them tell more.
Student's t-test and interval are of the mean difference and take differences for normal. Many
comparisons are corrected by Holm's step-down method.

References
----------
Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr
from scipy import stats

from otafl.analysis.points import (
    build_labels,
    find_main_variable,
    get_label,
    list_axes,
    spell_joint_axis,
    swap_to_coordinate,
)
from otafl.analysis.rows import TextTable
from otafl.analysis.summary import format_number
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count
from otafl.results.coordinates import find_places, format_value, format_values
from otafl.results.end_values import select_end_total
from otafl.results.variables import get_better_direction

MIN_PAIRS = 3
"""Fewer pairs give a mean difference, but no interval and no test."""

ROUNDING = 1e-12
"""Differences that are smaller than this part of the values are 0."""

STATISTICS = {
    "difference": "mean over pairs of value - baseline",
    "std": "standard deviation of the differences, with n - 1",
    "std_error": "standard error of the mean difference",
    "low": "lower end of the confidence interval",
    "high": "upper end of the confidence interval",
    "p": "p of the paired t-test, two-sided",
    "pairs": "pairs compared",
    "dropped": "pairs dropped, as one of the two is not there",
    "mean": "mean of the values in the pairs",
    "baseline_mean": "mean of the baseline in the pairs",
    "p_holm": "p of the paired t-test, corrected by Holm",
}
"""Name -> what it is."""


def compare_pairs(
    result: xr.Dataset,
    variable: str | None = None,
    axis: str | None = None,
    baseline: Any = None,
    level: float = 0.95,
) -> xr.Dataset:
    """Compare the values along an axis with one of them, over pairs of trials.

    A trial of two points has the same data split, fading and noise, so differences are taken trial
    by trial, at every point of the other axes. A trial that diverged has the accuracy of a guess.
    Comparisons of other variables drop such a trial, and `dropped` counts it.

    Parameters
    ----------
    result : xarray.Dataset
        Result of `open_results`, whole or with some points picked.
    variable : str, optional
        Variable, taken at the end of each trial; else the main accuracy.
    axis : str, optional
        Axis, or a coordinate along one whose values differ; else the only axis.
    baseline : object, optional
        Value of the axis, or its text, with which the other values are compared; else the first.
    level : float, default 0.95
        Level of the confidence intervals.

    Returns
    -------
    xarray.Dataset
        Statistics with the dims (axis without the baseline, other axes): `difference` (value -
        baseline), its `std`, `std_error`, interval `low` and `high`, `p` of the paired t-test,
        `p_holm` (corrected over all comparisons that are returned), `pairs`, `dropped`, `mean` and
        `baseline_mean`.
        The attribute `better` is "higher" or "lower", as more or less of the variable is better.

    Raises
    ------
    UserError
        If a name does not exist, or for the axis `seed`, along which no random numbers are common.

    See Also
    --------
    compare_results : Compare two results, or two points.
    """
    _check_level(level)
    axis = axis or _find_only_axis(result)
    if axis == "seed":
        raise UserError("paired: along 'seed' no random numbers are common; compare another axis")
    variable = variable or find_main_variable(result)
    values = select_end_total(swap_to_coordinate(result, axis, "paired: "), variable)
    place = 0 if baseline is None else _find_position(values, axis, baseline)
    others = np.delete(np.arange(values.sizes[axis]), place)
    if not len(others):
        raise UserError(
            f"paired: {axis} has one value, {format_value(values[axis].values[0])}; two differ"
        )
    base = values.isel({axis: place}, drop=True)
    table = compare_values(values.isel({axis: others}), base, level)
    attributes = {
        "variable": variable,
        "dim": axis,
        "baseline": format_value(values[axis].values[place]),
        "better": get_better_direction(variable) or "",
    }
    return table.assign_attrs(attributes | {"level": level})


def compare_results(
    first: xr.Dataset, second: xr.Dataset, variable: str | None = None, level: float = 0.95
) -> xr.Dataset:
    """Compare two results, or two points of results, over pairs of trials.

    They are compared at equal values of the axes that are left.

    Parameters
    ----------
    first : xarray.Dataset
        Baseline, as `open_results` returns it, or some of its points.
    second : xarray.Dataset
        Result that is compared with it, of the same seed.
    variable : str, optional
        Variable, taken at the end of each trial; else the main accuracy.
    level : float, default 0.95
        Level of the confidence intervals.

    Returns
    -------
    xarray.Dataset
        Statistics of second - first, as `compare_pairs` returns them, with the axes that are left.

    Raises
    ------
    UserError
        If the two have different seeds, different axes or no point in common.

    See Also
    --------
    compare_pairs : Compare the values along an axis of one result.
    """
    _check_level(level)
    seeds = [
        format_value(ds["seed"].values if "seed" in ds.coords else ds.attrs.get("seed"))
        for ds in (first, second)
    ]
    if seeds[0] != seeds[1]:
        raise UserError(
            f"paired: expected results of one seed, whose random numbers are common, got "
            f"{seeds[0]} and {seeds[1]}"
        )
    variable = variable or find_main_variable(first)
    base, values = (
        select_end_total(spell_joint_axis(ds), variable).reset_coords(drop=True)
        for ds in (first, second)
    )
    if set(base.dims) != set(values.dims):
        known = [", ".join(list_axes(ds)) or "no axis" for ds in (first, second)]
        raise UserError(
            f"paired: expected the same axes, got {known[0]} and {known[1]}; pick points of both "
            "with .sel"
        )
    base, values = xr.align(base, values, join="inner")
    if not base.size:
        raise UserError(
            "paired: no point and trial is in both results; `otafl diff` lists what differs"
        )
    table = compare_values(values, base, level)
    better = get_better_direction(variable) or ""
    about = {"variable": variable, "baseline": "the first", "better": better, "level": level}
    return table.assign_attrs(about)


def compare_values(values: xr.DataArray, base: xr.DataArray, level: float = 0.95) -> xr.Dataset:
    """Compute `STATISTICS` of values - base, both with dim trial; other dims are broadcast.

    Trials that only one of them has are not pairs.
    """
    base = base.reset_coords(drop=True)
    values, base = xr.align(values, base, join="inner", exclude=set(values.dims) - {"trial"})
    found = xr.apply_ufunc(
        _test_pairs,
        values.load(),
        base.load(),
        level,
        input_core_dims=[["trial"], ["trial"], []],
        output_core_dims=[["statistic"]],
        vectorize=True,
    )
    names = [name for name in STATISTICS if name != "p_holm"]
    table = found.assign_coords(statistic=names).to_dataset("statistic")
    table = table.assign({name: table[name].astype(int) for name in ("pairs", "dropped")})
    table["p_holm"] = table["p"].copy(data=adjust_p_values(table["p"].values))
    for name, said in STATISTICS.items():
        table[name].attrs = {"long_name": said}
    return table


def _test_pairs(values: np.ndarray, base: np.ndarray, level: float) -> np.ndarray:
    """Compute `STATISTICS` without p_holm of values and a baseline [n].

    What rounding leaves of equal values or differences is no evidence.
    """
    paired = np.isfinite(values) & np.isfinite(base)
    values, base = values[paired].astype(float), base[paired].astype(float)
    apart, count = values - base, len(values)
    rounding = ROUNDING * np.abs([values, base]).max(initial=0.0)
    apart[np.abs(apart) <= rounding] = 0.0
    if count and np.ptp(apart) <= rounding:
        apart[:] = apart[0]
    has_spread = count > 1 and np.ptp(apart) > 0
    mean, base_mean = (one.mean() if count else np.nan for one in (apart, base))
    std = apart.std(ddof=1) if has_spread else 0.0 if count > 1 else np.nan
    std_error = std / np.sqrt(count) if count else np.nan
    low = high = p = np.nan
    if count >= MIN_PAIRS:
        half = float(compute_quantile(count, level)) * std_error
        low, high = mean - half, mean + half
        p = stats.ttest_1samp(apart, 0.0).pvalue if has_spread else float(mean == 0)
    counts = count, len(paired) - count
    return np.array([mean, std, std_error, low, high, p, *counts, mean + base_mean, base_mean])


def adjust_p_values(p: np.ndarray) -> np.ndarray:
    """Raise p-values, of any shape, to account for their number (Holm 1979).

    The chance of any false positive among them is then at most the level. NaN stays NaN and does
    not count.
    """
    flat = np.asarray(p, dtype=float).ravel()
    out = np.full(flat.shape, np.nan)
    known = np.flatnonzero(~np.isnan(flat))
    order = known[np.argsort(flat[known], kind="stable")]
    stepped = flat[order] * (len(order) - np.arange(len(order)))
    out[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return out.reshape(np.shape(p))


def compute_quantile(count: Any, level: float = 0.95) -> np.ndarray:
    """Return Student's two-sided quantile t for means of `count` trials, of any shape.

    The interval at this level is the mean ± t s / sqrt(count). NaN for fewer than two trials.
    """
    return np.asarray(
        stats.t.ppf(0.5 + level / 2, np.where(np.greater(count, 1), count, np.nan) - 1)
    )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise UserError(f"level: expected a number above 0 and below 1, like 0.95, got {level!r}")


def _find_only_axis(ds: xr.Dataset) -> str:
    """Return the axis along which more than one value is; raise UserError for none or several."""
    known = [name for name in list_axes(ds) if ds.sizes[name] > 1]
    if len(known) == 1:
        return known[0]
    has = f"the result has {', '.join(known)}" if known else "the result has no sweep"
    raise UserError(f"paired: expected an axis or a second result; {has}")


def _find_position(values: xr.DataArray, axis: str, value: Any) -> int:
    """Find where a value, or its text, is on an axis."""
    try:
        return int(find_places(values.to_dataset(name="values"), axis, value)[0])
    except UserError as error:
        raise UserError(
            f"paired: the baseline {format_value(value)!r} is no value of {axis}; it has "
            f"{format_values(values[axis])}"
        ) from error


def build_pair_table(tests: xr.Dataset, variable: str = "", baseline: str = "") -> TextTable:
    """Lay out `compare_pairs` or `compare_results`, a row for each comparison.

    Parameters
    ----------
    variable : what differs, in words.
    baseline : what is subtracted, in words.
    """
    dims = [str(dim) for dim in tests["p"].dims]
    names, points = build_labels(tests, dims)
    titles = [
        *(get_label(tests, name) for name in names),
        "difference",
        f"{100 * tests.attrs['level']:g} % interval",
        "p (t, Holm)",
        "n",
    ]
    frame = pd.DataFrame({one: tests[one].transpose(*dims).values.ravel() for one in STATISTICS})
    rows = []
    for point, one in zip(points, frame.to_dict("records"), strict=True):
        said = {name: format_number(float(one[name]), 3) for name in STATISTICS}
        interval = "-" if said["low"] == "-" else f"{said['low']} to {said['high']}"
        count = f"{one['pairs']}" + (f", {one['dropped']} lost" if one["dropped"] else "")
        rows.append([*point, said["difference"], interval, said["p_holm"], count])
    caption = (
        f"Differences of {variable} from {baseline}, mean over n pairs of trials with common "
        f"random numbers; p is corrected by Holm over {format_count(len(rows), 'comparison')}"
    )
    _, bare = build_labels(tests, dims, units=False)
    for place, name in enumerate(names):
        frame.insert(place, name, [texts[place] for texts in bare])
    return TextTable(caption, titles, rows, frame, max(1, len(names)))


def list_pair_notes(tests: xr.Dataset, diverged: Sequence[str]) -> list[str]:
    """List what a reader must know of the comparisons.

    Parameters
    ----------
    diverged : of each result how many trials diverged and how they count; "" for none.
    """
    notes = list(dict.fromkeys(filter(None, diverged)))
    if int(tests["pairs"].max()) < MIN_PAIRS:
        notes.append(f"fewer than {MIN_PAIRS} pairs tell no significance; raise `trials`")
    return notes
