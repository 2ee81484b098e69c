"""Numbers of the part of a report that one explores: means over trials, thinned to a given size."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import t as student

from otafl.analysis.points import get_unit, is_numeric, list_axes
from otafl.analysis.summary import SHOWN
from otafl.analysis.variables import find_main_variable
from otafl.plots.overviews import list_free_axes, overview_data, unzip_axis
from otafl.plots.quantities import hold_last_value
from otafl.report.thinning import thin_points
from otafl.report.values import NOT_SHOWN
from otafl.results.coordinates import format_value, get_long_name
from otafl.results.end_values import (
    SUMMED_DIMS,
    SUMS,
    count_diverged,
    select_at_end,
    sum_over_devices,
)

CHARACTERS = 14
"""Number of characters of a value in the page: mean, deviation and trials in base 64."""
MAX_RECORDS = 100
"""Records of a curve, more than a screen shows."""
MIN_RECORDS = 8
"""Records below which curves are left out instead."""
WANTED_CURVES = 6
"""Curves that go before records."""
CONFIDENCE = 0.95
MAX_NAMES = 8
"""Names of variables that a sentence lists."""


class Statistics(NamedTuple):
    """Moments of a variable over the finite trials, each [points] or [points, records].

    Parameters
    ----------
    mean, std : deviation with n - 1, NaN for one trial.
    num_finite : number of finite trials.
    """

    mean: np.ndarray
    std: np.ndarray
    num_finite: np.ndarray


class Sizes(NamedTuple):
    """What is left of a result that is too large.

    Parameters
    ----------
    ends, curves : number of variables with values at the end, and with values by rounds.
    records : number of records of each curve.
    """

    ends: int
    curves: int
    records: int


def build_explorer(ds: xr.Dataset, room: int) -> dict[str, Any] | None:
    """Build what the script of the page reads, in at most about `room` characters.

    Parameters
    ----------
    ds : result, as `open_results` returns it.
    room : characters for the values.

    Returns
    -------
    dict or None
        Axes, variables, rounds, quantiles and the first choice of the controls; None where nothing
        has a value yet. `left_out` says in sentences what there was no room for.
    """
    main = find_main_variable(ds)
    if not bool(ds[main].notnull().any()):
        return None
    ds, said = thin_points(_keep_free_axes(unzip_axis(ds)), room // (2 * CHARACTERS))
    names = _list_variables(ds, main)
    sizes = _choose_sizes(ds, names, room)
    if sizes.ends < len(names):
        said.append(f"Variables without values here: {_join_names(names[sizes.ends :])}.")
    names = names[: sizes.ends]
    with_rounds = [name for name in names if "round" in ds[name].dims][: sizes.curves]
    rounds = ds.sizes["round"]
    places = np.unique(np.linspace(0, rounds - 1, max(1, min(rounds, sizes.records))).astype(int))
    if with_rounds and len(places) < rounds:
        said.append(f"Curves have {len(places)} of {rounds} records.")
    more = [name for name in names if "round" in ds[name].dims and name not in with_rounds]
    if more:
        said.append(f"Variables without curves here: {_join_names(more)}.")
    variables, counts = [], set()
    for name in names:
        entry, numbers = _describe_variable(ds, name, places if name in with_rounds else None)
        variables.append(entry)
        counts |= numbers
    return {
        "axes": [_describe_axis(ds, dim) for dim in list_axes(ds)],
        "variables": variables,
        "rounds": [float(one) for one in ds["round"].values[places]],
        "quantiles": {str(n): _compute_quantile(n) for n in sorted(counts) if n > 1},
        "start": _choose_start(ds, main, main in with_rounds),
        "left_out": said,
    }


def _join_names(names: list[str]) -> str:
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*names[:MAX_NAMES], *more])


def _keep_free_axes(ds: xr.Dataset) -> xr.Dataset:
    """Drop the axes of the sweep that have one value."""
    return ds.isel({dim: 0 for dim in list_axes(ds) if ds.sizes[dim] == 1})


def _list_variables(ds: xr.Dataset, main: str) -> list[str]:
    """Return the variables of whole trials that have values, the most important first."""
    allowed = {"trial", "round", *SUMMED_DIMS, *list_axes(ds)}
    return [
        name
        for name in dict.fromkeys((main, *SHOWN, *map(str, ds.data_vars)))
        if name in ds
        and name not in NOT_SHOWN
        and ds[name].dtype.kind in "fiub"
        and "trial" in ds[name].dims
        and set(map(str, ds[name].dims)) <= allowed
        and bool(ds[name].notnull().any())
    ]


def _choose_sizes(ds: xr.Dataset, names: list[str], room: int) -> Sizes:
    """Divide the room: half for values at the end, the rest for curves of at least some records."""
    one = ds["final_round"].size * CHARACTERS
    ends = max(1, min(len(names), room // 2 // one))
    rest = (room - ends * one) // one
    candidates = sum("round" in ds[name].dims for name in names[:ends])
    rounds = min(ds.sizes["round"], MAX_RECORDS)
    wanted = max(1, min(candidates, WANTED_CURVES))
    records = min(rounds, max(rest // wanted, min(rounds, MIN_RECORDS)))
    return Sizes(ends, min(candidates, rest // max(1, records)), records)


def _describe_variable(
    ds: xr.Dataset, name: str, places: np.ndarray | None
) -> tuple[dict[str, Any], set[int]]:
    """Return a variable's texts and numbers, and the numbers of trials that its means are of."""
    units = get_unit(ds[name])
    values = count_diverged(ds, [name])
    ends = _compute_statistics(_reduce(select_at_end(values, name).rename(name), ds))
    meaning = f"{SUMS[name]}, sum over devices" if name in SUMS else get_long_name(ds, name)
    entry: dict[str, Any] = {
        "name": name,
        "label": meaning + (f" [{units}]" if units else ""),
        "ends": _encode(ends),
    }
    counts = set(np.unique(ends.num_finite).tolist())
    if places is not None:
        held = hold_last_value(values, name).isel(round=places).rename(name)
        curves = _compute_statistics(_reduce(held, ds))
        entry["curves"] = _encode(curves)
        counts |= set(np.unique(curves.num_finite).tolist())
    return entry, counts


def _reduce(values: xr.DataArray, ds: xr.Dataset) -> np.ndarray:
    """Return values [points, trials] or [points, records, trials], without devices."""
    values = sum_over_devices(values)
    values = values.mean([dim for dim in SUMMED_DIMS if dim in values.dims])
    axes = list_axes(ds)
    absent = {dim: ds.sizes[dim] for dim in axes if dim not in values.dims}
    rest = ["round"] if "round" in values.dims else []
    values = values.expand_dims(absent).transpose(*axes, *rest, "trial").compute()
    return values.values.reshape(-1, *(values.sizes[dim] for dim in (*rest, "trial")))


def _compute_statistics(values: np.ndarray) -> Statistics:
    """Compute the moments over the last dimension, of finite values only."""
    finite = np.isfinite(values)
    count = finite.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(finite, values, 0.0).sum(-1) / np.where(count, count, np.nan)
        squares = np.where(finite, (values - mean[..., None]) ** 2, 0.0).sum(-1)
        std = np.sqrt(squares / np.where(count > 1, count - 1, np.nan))
    std = np.where(np.abs(std) < 1e-6 * np.abs(mean), 0.0, std)
    return Statistics(mean, std, count)


def _encode(statistics: Statistics) -> dict[str, Any]:
    """Return the moments in base 64, as little-endian float32 and uint16."""
    count = np.minimum(statistics.num_finite, np.iinfo(np.uint16).max)
    with np.errstate(over="ignore"):
        found: dict[str, Any] = {
            key: _to_base64(array.astype("<f4"))
            for key, array in (("mean", statistics.mean), ("std", statistics.std))
        }
    is_constant = count.size and count.min() == count.max()
    return found | {"count": int(count.flat[0]) if is_constant else _to_base64(count.astype("<u2"))}


def _to_base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _describe_axis(ds: xr.Dataset, dim: str) -> dict[str, Any]:
    """Return an axis's texts, each once, and its numbers where it has some."""
    units, values = get_unit(ds[dim]), ds[dim].values
    texts = [format_value(value) for value in values]
    seen: dict[str, int] = {}
    for i, text in enumerate(texts):
        seen[text] = seen.get(text, 0) + 1
        texts[i] = text if seen[text] == 1 else f"{text} #{seen[text]}"
    numbers = None
    if is_numeric(ds[dim]) and bool(np.isfinite(values).all()):
        numbers = [float(value) for value in values]
    label = get_long_name(ds, dim) + (f" [{units}]" if units else "")
    return {"name": dim, "label": label, "texts": texts, "numbers": numbers}


def _choose_start(ds: xr.Dataset, main: str, has_curves: bool) -> dict[str, str]:
    """Return the first choice of the controls: that of the overview."""
    attrs = overview_data(ds)[0].attrs if list_free_axes(ds) else {"x": "round"}
    axes = list_axes(ds)
    x = str(attrs["x"])
    if x == "round" and not has_curves and axes:
        x = axes[0]
    hue, panel = (str(attrs.get(key) or "") for key in ("hue", "facet"))
    return {
        "y": main,
        "x": x,
        "hue": hue if hue != x else "",
        "panel": panel if panel != x else "",
    }


def _compute_quantile(count: int) -> float:
    """Return the two-sided quantile of Student's t with count - 1 degrees of freedom."""
    return float(student.ppf((1 + CONFIDENCE) / 2, count - 1))
