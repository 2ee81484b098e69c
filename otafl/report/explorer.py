"""Part of a report that one explores: its numbers, means over trials, and its library.

Vega, Vega-Lite and Vega-Embed come as one script from the package vl-convert-python, which has them
compiled in, so nothing is fetched from a network. Its JavaScript engine reserves tens of gigabytes
of addresses and ends its process where it gets fewer, so it runs in a process of its own.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xarray as xr

from otafl.analysis.paired import compute_quantile
from otafl.analysis.points import find_main_variable, format_label, is_numeric, list_axes
from otafl.analysis.summary import SHOWN
from otafl.plots.overviews import list_free_axes, overview_data, unzip_axis
from otafl.plots.quantities import hold_last_value
from otafl.report.tables import NOT_SHOWN
from otafl.results.coordinates import format_value
from otafl.results.end_values import SUMMED_DIMS, count_diverged, select_at_end, sum_over_devices

MAX_VALUES = 40_000
"""Means that the page contains, each of about 20 characters with its deviation and trials."""
MAX_RECORDS = 30
"""Records of a curve."""
PROGRAM = """\
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""
FORBIDDEN = ("</script", "<script", "<!--", "\0", "\r")
"""Texts that would end a script element, or that a browser would read differently."""


@functools.cache
def load_library() -> str | None:
    """Return the script, or None where the package is missing or cannot be put into a page."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    script = done.stdout.decode(errors="replace")
    is_safe = not any(text in script.lower() for text in FORBIDDEN)
    return script if done.returncode == 0 and is_safe else None


def describe_missing() -> str:
    """Write what a page without the library lacks, and how to get it; empty if it is there."""
    if load_library() is not None:
        return ""
    return (
        "the page has its figures and tables only; to explore it in the browser, run "
        "pip install 'otafl[report]', and leave its memory unlimited (ulimit -v)"
    )


def build_explorer(ds: xr.Dataset, max_values: int = MAX_VALUES) -> dict[str, Any] | None:
    """Build what the script of the page reads.

    The first variables have curves, as far as there is room, the next values at the end only.

    Parameters
    ----------
    ds : result, as `open_results` returns it.
    max_values : means of all variables together, at most; the first has its end in any case.

    Returns
    -------
    dict or None
        Axes, variables, rounds, quantiles and the first choice of the controls; None where nothing
        has a value yet. `left_out` says in sentences what there was no room for.
    """
    main = find_main_variable(ds)
    if not bool(ds[main].notnull().any()):
        return None
    ds = unzip_axis(ds)
    ds = ds.isel({dim: 0 for dim in list_axes(ds) if ds.sizes[dim] == 1})
    names, points, said = _list_variables(ds, main), ds["final_round"].size, []
    places = np.unique(np.linspace(0, ds.sizes["round"] - 1, MAX_RECORDS).astype(int))
    ends = names[: max(1, max_values // 2 // points)]
    room = (max_values // points - len(ends)) // len(places)
    curves = [name for name in ends if "round" in ds[name].dims][:room]
    if curves and len(places) < ds.sizes["round"]:
        said.append(f"Curves have {len(places)} of {ds.sizes['round']} records.")
    for what, shown in (("values", ends), ("curves", curves)):
        if left := [name for name in names if name not in shown and "round" in ds[name].dims]:
            said.append(f"Variables without {what} here: {', '.join(left)}.")
    counts: set[int] = set()
    variables = [
        _describe_variable(ds, name, places if name in curves else None, counts) for name in ends
    ]
    return {
        "axes": [_describe_axis(ds, dim) for dim in list_axes(ds)],
        "variables": variables,
        "rounds": [float(one) for one in ds["round"].values[places]],
        "quantiles": {str(n): float(compute_quantile(n)) for n in sorted(counts) if n > 1},
        "start": _choose_start(ds, main, main in curves),
        "left_out": said,
    }


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


def _describe_variable(
    ds: xr.Dataset, name: str, places: np.ndarray | None, counts: set[int]
) -> dict[str, Any]:
    """Return a variable's texts, and its moments at the end and at the places of records.

    To counts it adds the numbers of trials that these are of.
    """
    values = count_diverged(ds, [name])
    entry: dict[str, Any] = {
        "name": name,
        "label": format_label(sum_over_devices(ds[name]), name),
        "ends": _compute_moments(_reduce(select_at_end(values, name).rename(name), ds), counts),
    }
    if places is not None:
        held = hold_last_value(values, name).isel(round=places).rename(name)
        entry["curves"] = _compute_moments(_reduce(held, ds), counts)
    return entry


def _reduce(values: xr.DataArray, ds: xr.Dataset) -> np.ndarray:
    """Return values [points, trials] or [points, records, trials], without devices."""
    values = sum_over_devices(values)
    values = values.mean([dim for dim in SUMMED_DIMS if dim in values.dims])
    axes = list_axes(ds)
    absent = {dim: ds.sizes[dim] for dim in axes if dim not in values.dims}
    rest = ["round"] if "round" in values.dims else []
    values = values.expand_dims(absent).transpose(*axes, *rest, "trial").compute()
    return values.values.reshape(-1, *(values.sizes[dim] for dim in (*rest, "trial")))


def _compute_moments(values: np.ndarray, counts: set[int]) -> dict[str, Any]:
    """Return mean, deviation and number of the finite trials, the last dimension, in a row.

    Mean and deviation are null where there is none. The number is one where it is always the same.
    """
    trials = pd.DataFrame(values.reshape(-1, values.shape[-1]).astype(float)).where(np.isfinite)
    mean, std, count = trials.mean(axis=1), trials.std(axis=1), trials.count(axis=1)
    std = std.mask(std < 1e-6 * mean.abs(), 0.0)
    counts |= set(count)
    number = int(count[0]) if count.nunique() == 1 else count.tolist()
    return {"mean": _round_numbers(mean), "std": _round_numbers(std), "count": number}


def _round_numbers(values: pd.Series) -> list[float | None]:
    """Return numbers to six significant digits."""
    return [float(f"{one:.6g}") if np.isfinite(one) else None for one in values]


def _describe_axis(ds: xr.Dataset, dim: str) -> dict[str, Any]:
    """Return an axis's texts, each once, and its numbers where it has some."""
    values = ds[dim].values
    texts = [format_value(value) for value in values]
    texts = [t if t not in texts[:i] else f"{t} #{i + 1}" for i, t in enumerate(texts)]
    numbers = None
    if is_numeric(ds[dim]) and bool(np.isfinite(values).all()):
        numbers = [float(value) for value in values]
    return {"name": dim, "label": format_label(ds[dim], dim), "texts": texts, "numbers": numbers}


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
