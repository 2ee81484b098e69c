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

from otafl.analysis.points import swap_to_coordinate
from otafl.core.errors import UserError
from otafl.results.coordinates import format_value, format_values, pick
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
    dataset: xr.Dataset, variable: str, dim: str, baseline: Any, level: float = 0.95
) -> xr.Dataset:
    """Compare each value along an axis of a sweep with one of them, at every point of the others.

    The accuracy of a trial that diverged is that of a guess (`results.ending.count_diverged`). Of
    other variables such a trial is dropped from that comparison and counted in `dropped`: what is
    left speaks of the trials that both survived.

    Parameters
    ----------
    dataset : as `open_results` gives it.
    variable : taken at the end of each trial (`results.ending.ended`).
    dim : the axis, or a coordinate along one whose values differ.
    baseline : one of its values; as text too.
    level : of the confidence intervals.

    Returns
    -------
    `STATISTICS` and `p_holm`, p corrected over all comparisons that are returned, with dims (dim
    without the baseline, other axes). The attribute `better` is "higher" or "lower", as more or
    less of the variable is better.

    Raises
    ------
    UserError : for names that are not there, and for the axis `seed`, along which no random numbers
        are common.
    """
    if dim == "seed":
        raise UserError("paired: along 'seed' no random numbers are common; compare another axis")
    values = select_end_total(swap_to_coordinate(dataset, dim, "paired: "), variable)
    place = _find_position(values[dim], baseline)
    others = np.delete(np.arange(values.sizes[dim]), place)
    if not len(others):
        raise UserError(
            f"paired: {dim} has one value, {format_value(values[dim].values[0])}; two differ"
        )
    base = values.isel({dim: place}, drop=True)
    table = compare_values(values.isel({dim: others}), base, level)
    table["p_holm"] = table["p"].copy(data=adjust_p_values(table["p"].values))
    table["p_holm"].attrs["long_name"] = "p of the paired t-test, corrected by Holm"
    attributes = {
        "variable": variable,
        "dim": dim,
        "baseline": format_value(values[dim].values[place]),
        "better": get_better_direction(variable) or "",
    }
    return table.assign_attrs(attributes | {"level": level})


def compare_values(values: xr.DataArray, base: xr.DataArray, level: float = 0.95) -> xr.Dataset:
    """Compute `STATISTICS` of values - base, both with dim trial; other dims are broadcast.

    Trials that only one of them has are not pairs.
    """
    values, base = xr.align(values, base, join="inner", exclude=set(values.dims) - {"trial"})
    found = xr.apply_ufunc(
        _compute_statistics,
        values.load(),
        base.load(),
        input_core_dims=[["trial"], ["trial"]],
        output_core_dims=[["statistic"]],
        vectorize=True,
        kwargs={"level": level},
    )
    table = found.assign_coords(statistic=list(STATISTICS)).to_dataset("statistic")
    for name, said in STATISTICS.items():
        table[name].attrs = {"long_name": said}
    return table.assign(pairs=table["pairs"].astype(int), dropped=table["dropped"].astype(int))


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


def _compute_statistics(values: np.ndarray, base: np.ndarray, level: float) -> np.ndarray:
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
        half = stats.t.ppf(0.5 + level / 2, n - 1) * out["std_error"]
        out |= {"low": apart.mean() - half, "high": apart.mean() + half}
        out |= dict(zip(("p", "p_wilcoxon"), _test_differences(apart), strict=True))
    return np.array([out[name] for name in STATISTICS], dtype=float)


def _test_differences(differences: np.ndarray) -> tuple[float, float]:
    """Return p of the t-test and of the signed-rank test that differences [n] are around 0."""
    if not np.any(differences):
        return 1.0, 1.0
    with warnings.catch_warnings():
        # equal differences: their spread is 0, and the p-value with it
        warnings.simplefilter("ignore", RuntimeWarning)
        student = stats.ttest_1samp(differences, 0.0).pvalue
    return float(student), float(stats.wilcoxon(differences).pvalue)


def _find_position(axis: xr.DataArray, value: Any) -> int:
    """Find where a value, or its text, is on an axis."""
    places = xr.Dataset({"place": (axis.dims, np.arange(axis.size))}, {axis.name: axis})
    try:
        return int(pick(places, str(axis.name), value)["place"])
    except UserError as error:
        raise UserError(
            f"paired: the baseline {format_value(value)!r} is no value of {axis.name}; it has "
            f"{format_values(axis)}"
        ) from error
