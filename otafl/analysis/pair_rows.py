"""Paired comparisons as rows of texts, for the command line and the report."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from otafl.analysis.labels import get_label
from otafl.analysis.paired import MIN_PAIRS, STATISTICS
from otafl.analysis.points import build_labels
from otafl.analysis.summary import format_number
from otafl.core.suggestions import format_count

WRITTEN = ("p_holm", *STATISTICS)
"""Columns of a CSV file, after the coordinates."""


def build_pair_rows(tests: xr.Dataset) -> tuple[list[str], list[list[str]]]:
    """Return titles, and a row for each comparison of `compare_pairs` or `compare_results`."""
    dims = _list_dims(tests)
    names, points = build_labels(tests, dims)
    titles = [
        *(get_label(tests, name) for name in names),
        "difference",
        f"{100 * tests.attrs['level']:g} % interval",
        "p (t, Holm)",
        "p (Wilcoxon)",
        "n",
        "unpaired trials per pair",
    ]
    flat = {name: values.transpose(*dims).values.ravel() for name, values in tests.items()}
    rows = []
    for i, point in enumerate(points):
        said = {name: format_number(float(values[i]), 3) for name, values in flat.items()}
        lost = int(flat["dropped"][i])
        rows.append(
            [
                *point,
                said["difference"],
                "-" if said["low"] == "-" else f"{said['low']} to {said['high']}",
                said["p_holm"],
                said["p_wilcoxon"],
                f"{int(flat['pairs'][i])}" + (f", {lost} lost" if lost else ""),
                format_number(float(flat["variance_ratio"][i]), 2),
            ]
        )
    return titles, rows


def build_pair_csv(tests: xr.Dataset) -> tuple[list[str], list[list[object]]]:
    """Return the columns of a CSV file, and a row for each comparison with all statistics."""
    dims = _list_dims(tests)
    names, points = build_labels(tests, dims, units=False)
    flat = [tests[name].transpose(*dims).values.ravel() for name in WRITTEN]
    cells = zip(points, zip(*flat, strict=True), strict=True)
    rows = [[*point, *("" if v != v else v.item() for v in row)] for point, row in cells]
    return [*names, *WRITTEN], rows


def describe_pairs(tests: xr.Dataset, said: str, baseline: str) -> str:
    """Describe what is compared with what, and how.

    Parameters
    ----------
    said : the variable in words.
    baseline : what is subtracted, in words.
    """
    return (
        f"Differences of {said} from {baseline}, mean over n pairs of trials with common random "
        f"numbers; p is corrected by Holm over {format_count(tests['p'].size, 'comparison')}"
    )


def list_pair_notes(tests: xr.Dataset, diverged: Sequence[str]) -> list[str]:
    """List what a reader must know of the comparisons.

    Parameters
    ----------
    diverged : of each result how many trials diverged and how they count; "" for none.
    """
    notes = list(dict.fromkeys(filter(None, diverged)))
    if keys := tests.attrs.get("data_differ"):
        notes.append(
            f"the results have different {keys}, so the trials of a pair do not have the same "
            "samples; compare results with the same section `data`"
        )
    if int(tests["pairs"].max()) < MIN_PAIRS:
        notes.append(f"fewer than {MIN_PAIRS} pairs tell no significance; raise `trials`")
    return notes


def _list_dims(tests: xr.Dataset) -> list[str]:
    return [str(dim) for dim in tests["p"].dims]
