"""FedHM and its rivals at tuned steps: Table 3 by step, Tables 2, 3, 7 and 8 in fresh trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from otafl.analysis.paired import adjust_p_values, compare_values
from studies.common.tables import expand_points, format_points, open_result, print_head, print_row
from studies.fedhm.levels import SPLITS, find_best, format_levels, is_done, select_tests

FRESH = (("FedAvg, slim", "smallest", -1), ("HeteroFL", "smallest", -1), ("HeteroFL", "largest", 0))
"""Rival, size and place of the level compared in fresh trials."""
MIXES = {4: "1, 1/2, 1/4, 1/8", 3: "1/2 (x2), 1/4, 1/8", 2: "1/4 (x3), 1/8", 1: "1/8 (x4)"}
"""Number of levels -> levels of Table 7."""
LIKE_SIZES = (("rank 1/2", "slim 0.68"), ("rank 1/4", "slim 0.54"), ("rank 1/8", "slim 0.45"))
"""Ranks and widths of about as many parameters."""

Fresh = dict[tuple[str, str], xr.DataArray]
"""Best accuracies [trial, level] by what and split."""
Pair = Sequence[xr.DataArray]
"""Two accuracies [trial]."""


def name_method(algorithm: Any) -> str:
    """Name the method of a point's settings."""
    names = {"fedhm": "FedHM", "split_mix": "Split-Mix", "fedrolex": "FedRolex"}
    variants = {4: "HeteroFL", 3: "HeteroFL-V2", 2: "HeteroFL-V3", 1: "FedAvg, slim"}
    return names.get(algorithm.name) or variants[len(algorithm.levels)]


def collect_steps(results: Path) -> dict[tuple[str, str], dict[float, xr.DataArray]]:
    """Collect the best accuracy in percent [trial, level] of the sizes that there are, by step.

    Method and split are the keys. A trial that diverged counts as a guess.
    """
    found: dict[tuple[str, str], dict[float, xr.DataArray]] = {}
    for file in ("fedhm_table3", "fedhm_table3_steps", "fedhm_table3_split_mix"):
        ds = open_result(results, file)
        for number, point in enumerate(expand_points(ds)):
            place, at = divmod(number, len(SPLITS))
            one, algorithm = ds.isel(zip=place, partition=at), point.scenario.algorithm
            key, step = (name_method(algorithm), SPLITS[at]), float(algorithm.learning_rate)
            if not is_done(one):
                continue
            found.setdefault(key, {})[step] = find_best(one)
    return {key: dict(sorted(tried.items())) for key, tried in found.items() if len(tried) > 1}


def print_steps(results: Path) -> None:
    """Table 3 at other steps: the smallest model."""
    found = collect_steps(results)
    steps = sorted({step for tried in found.values() for step in tried})
    columns = (*(f"step {step:g}" for step in steps), "best (* an end)")
    print_head("Table 3 by step: the smallest model, best round, %", "method", "split", *columns)
    for key, tried in found.items():
        top = max(tried, key=lambda step: float(tried[step][:, -1].mean()))
        small = {step: f"{float(one[:, -1].mean()):.2f}" for step, one in tried.items()}
        end = "*" if top in (min(tried), max(tried)) else ""
        print_row(*key, *(small.get(step, "") for step in steps), f"{top:g}{end}")


def print_fresh(results: Path) -> None:
    """Tables 2, 3, 7 and 8 at the best steps of Table 3, 0.3, in trials that chose no step."""
    third = collect_fresh(results, "fedhm_table3_best", name_method)
    # slim FedAvg has one level, so nothing changes from round to round
    slim = {key: value for key, value in third.items() if key[0] == "FedAvg, slim"}
    second = collect_fresh(results, "fedhm_table2_best", name_method) | slim
    for table, found in ((2, second), (3, third)):
        title = title_fresh(table, found)
        print_head(f"{title}: best round, %", "method", "split", "largest to smallest")
        for key, best in found.items():
            print_row(*key, format_levels(100 * best))
        pairs = {
            (rival, size, split): [found[name, split][:, level] for name in ("FedHM", rival)]
            for rival, size, level in FRESH
            for split in SPLITS
        }
        print_tests(f"{title}: points of FedHM above (95 %)", ("rival", "size", "split"), pairs)
    alike = collect_fresh(results, "fedhm_table8_best", name_size)
    alone = {(MIXES[1], split): alike["rank 1/8", split] for split in SPLITS}
    whole = {(MIXES[4], split): third["FedHM", split] for split in SPLITS}
    mixed = whole | collect_fresh(results, "fedhm_table7_best", name_mix) | alone
    title = title_fresh(7, mixed)
    pairs = {
        (levels, split): [mixed[one, split][:, -1] for one in (levels, MIXES[1])]
        for levels in MIXES.values()
        for split in SPLITS
        if levels != MIXES[1]
    }
    print_tests(f"{title}: points of the smallest above itself alone", ("levels", "split"), pairs)
    title = title_fresh(8, alike)
    pairs = {
        (rank, width, split): [alike[name, split][:, 0] for name in (rank, width)]
        for rank, width in LIKE_SIZES
        for split in SPLITS
    }
    print_tests(f"{title}: points of rank above width", ("rank", "width", "split"), pairs)


def collect_fresh(results: Path, name: str, name_point: Callable[[Any], str]) -> Fresh:
    """Collect a sweep's fresh trials; `name_point` takes settings of a method."""
    ds = select_tests(open_result(results, name))
    found = {}
    for number, point in enumerate(expand_points(ds)):
        place, at = divmod(number, len(SPLITS))
        best = find_best(ds.isel(zip=place, partition=at)) / 100
        found[name_point(point.scenario.algorithm), SPLITS[at]] = best
    return found


def name_mix(algorithm: Any) -> str:
    """Name FedHM's levels, of which the devices of Table 7 have different shares."""
    return MIXES[len(algorithm.levels)]


def name_size(algorithm: Any) -> str:
    """Name the one size of all devices in Table 8."""
    (level,) = algorithm.levels
    if algorithm.name == "heterofl":
        return f"slim {level:g}"
    return "dense" if level == 1 else f"rank 1/{1 / level:g}"


def title_fresh(table: int, found: Fresh) -> str:
    """Start of the titles of a table in fresh trials."""
    (best, *_) = found.values()
    return f"Table {table} at step 0.3, {best.sizes['trial']} fresh trials"


def print_tests(title: str, labels: Sequence[str], pairs: Mapping[Any, Pair]) -> None:
    """Print by how many points the first of each pair is above the second, in the same trials."""
    p = np.array([float(compare_values(one, other)["p"]) for one, other in pairs.values()])
    corrected = f"p (Holm, {len(p)} comparisons)"
    print_head(title, *labels, "points", corrected)
    for (key, (one, other)), value in zip(pairs.items(), adjust_p_values(p), strict=True):
        print_row(*key, format_points(one, other), f"{value:.2g}")
