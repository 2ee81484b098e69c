"""Compare points of a sweep in pairs, under common random numbers.

Trial i of two points has the same data split, the same fading and the same noise, so a difference
between them is taken trial by trial: what the trials share drops out, and fewer of them tell more.
Student's t-test and interval are of the mean difference and take differences for normal; Wilcoxon's
signed-rank test asks for symmetry alone, but cannot reach 5 % with fewer than six pairs. Many
comparisons are corrected by Holm's step-down method.

References
----------
Wilcoxon 1945, "Individual Comparisons by Ranking Methods".
Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from otafl.analysis.matching import is_whole, select_common_points
from otafl.analysis.points import find_main_variable, find_places, list_axes, swap_to_coordinate
from otafl.core.errors import UserError
from otafl.results.coordinates import format_value, format_values
from otafl.results.end_values import select_end_total
from otafl.results.header import read_scenario
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
    "p_wilcoxon": "p of Wilcoxon's signed-rank test, two-sided",
    "effect": "mean difference over its standard deviation",
    "pairs": "pairs compared",
    "dropped": "pairs dropped, as one of the two is not there",
    "mean": "mean of the values in the pairs",
    "baseline_mean": "mean of the baseline in the pairs",
    "variance_ratio": "variance of the difference if unpaired, over that of the pairs",
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
        `p_holm` (corrected over all comparisons that are returned), `p_wilcoxon`, `effect`,
        `pairs`, `dropped`, `mean`, `baseline_mean` and `variance_ratio`.
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
    table = _adjust(compare_values(values.isel({axis: others}), base, level))
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

    Whole results are compared at the points that have the same swept settings in both. Results of
    which points were picked are compared at equal values of the axes that are left.

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
        Statistics of second - first, as `compare_pairs` returns them, with the dim `point` for
        whole results, else with the axes that are left. The attribute `data_differ` names the keys
        of section `data` that differ; pairs then do not share their samples.

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
    differing = _list_differing_data(first, second)
    if is_whole(first) and is_whole(second):
        first, second = select_common_points(first, second)
    base, values = (
        select_end_total(ds, variable).reset_coords(drop=True) for ds in (first, second)
    )
    if set(base.dims) != set(values.dims):
        known = [", ".join(list_axes(ds)) or "no axis" for ds in (first, second)]
        raise UserError(
            f"paired: expected the same axes, got {known[0]} and {known[1]}; pick points of both "
            "with .sel"
        )
    base, values = xr.align(base, values, join="inner")
    if not base.size:
        raise UserError("paired: no point and trial is in both results")
    table = _adjust(compare_values(values, base, level))
    better = get_better_direction(variable) or ""
    about = {"variable": variable, "baseline": "the first", "better": better, "level": level}
    return table.assign_attrs(about | {"data_differ": ", ".join(differing)})


def _list_differing_data(first: xr.Dataset, second: xr.Dataset) -> list[str]:
    """List the keys of section `data` whose values differ between two results."""
    one, two = (_read_data_section(ds) for ds in (first, second))
    return [f"data.{key}" for key in dict.fromkeys((*one, *two)) if one.get(key) != two.get(key)]


def _read_data_section(ds: xr.Dataset) -> dict[str, Any]:
    """Read the section `data` of a result's scenario; empty if there is none."""
    try:
        section = read_scenario(ds.attrs).get("data")
    except UserError:
        return {}
    return section if isinstance(section, dict) else {}


def compare_values(
    values: xr.DataArray, base: xr.DataArray, level: float = 0.95, *, has_tests: bool = True
) -> xr.Dataset:
    """Compute `STATISTICS` of values - base, both with dim trial; other dims are broadcast.

    Trials that only one of them has are not pairs. Without tests, which take most of the time, both
    p are NaN.
    """
    values, base = xr.align(values, base, join="inner", exclude=set(values.dims) - {"trial"})
    found = xr.apply_ufunc(
        _compute_statistics,
        values.load(),
        base.load(),
        input_core_dims=[["trial"], ["trial"]],
        output_core_dims=[["statistic"]],
        vectorize=True,
        kwargs={"level": level, "has_tests": has_tests},
    )
    columns = dict(zip(STATISTICS, np.moveaxis(found.values, -1, 0), strict=True))
    columns |= {name: columns[name].astype(int) for name in ("pairs", "dropped")}
    table = {
        name: (found.dims[:-1], columns[name], {"long_name": said})
        for name, said in STATISTICS.items()
    }
    return xr.Dataset(table, found.coords, found.attrs)


def _adjust(table: xr.Dataset) -> xr.Dataset:
    """Add the p-values corrected over all comparisons of a table."""
    table["p_holm"] = table["p"].copy(data=adjust_p_values(table["p"].values))
    table["p_holm"].attrs["long_name"] = "p of the paired t-test, corrected by Holm"
    return table


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


def _compute_statistics(
    values: np.ndarray, base: np.ndarray, level: float, has_tests: bool
) -> np.ndarray:
    """Return `STATISTICS`, in their order, of two rows of trials [n]."""
    there = np.isfinite(values) & np.isfinite(base)
    own, other = values[there], base[there]
    apart, n = own - other, int(there.sum())
    # what rounding leaves of equal values, or of equal differences, is no evidence
    rounding = ROUNDING * max(np.abs(own).max(initial=0.0), np.abs(other).max(initial=0.0))
    apart[np.abs(apart) <= rounding] = 0.0
    if n and np.ptp(apart) <= rounding:
        apart[:] = apart.mean()
    out = dict.fromkeys(STATISTICS, np.nan) | {"pairs": n, "dropped": len(values) - n}
    if n:
        out |= {"difference": apart.mean(), "mean": own.mean(), "baseline_mean": other.mean()}
    if n > 1:
        std = apart.std(ddof=1) if np.ptp(apart) else 0.0
        out |= {"std": std, "std_error": std / np.sqrt(n)}
        if std > 0:
            out["effect"] = apart.mean() / std
            out["variance_ratio"] = (own.var(ddof=1) + other.var(ddof=1)) / std**2
    if n >= MIN_PAIRS:
        half = float(compute_quantile(n, level)) * out["std_error"]
        out |= {"low": apart.mean() - half, "high": apart.mean() + half}
        if has_tests:
            out |= dict(zip(("p", "p_wilcoxon"), _test_differences(apart), strict=True))
    return np.array([out[name] for name in STATISTICS], dtype=float)


def compute_quantile(count: Any, level: float = 0.95) -> np.ndarray:
    """Return Student's two-sided quantile t for means of `count` trials, of any shape.

    The interval at this level is the mean ± t s / sqrt(count). NaN for fewer than two trials.
    """
    return np.asarray(
        stats.t.ppf(0.5 + level / 2, np.where(np.greater(count, 1), count, np.nan) - 1)
    )


def _test_differences(differences: np.ndarray) -> tuple[float, float]:
    """Return p of the t-test and of the signed-rank test that differences [n] are around 0."""
    if not np.any(differences):
        return 1.0, 1.0
    with warnings.catch_warnings():
        # equal differences: their spread is 0, and the p-value with it
        warnings.simplefilter("ignore", RuntimeWarning)
        student = stats.ttest_1samp(differences, 0.0).pvalue
    return float(student), float(stats.wilcoxon(differences).pvalue)


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
        return int(find_places(values.to_dataset(name="values"), axis, value))
    except UserError as error:
        raise UserError(
            f"paired: the baseline {format_value(value)!r} is no value of {axis}; it has "
            f"{format_values(values[axis])}"
        ) from error
