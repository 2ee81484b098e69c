"""Records whose values say where they belong, and parts of sweeps that hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from otafl.results.dataset import Record, combine, describe_sweep, to_dataset
from otafl.results.files import SweepFile, write_part
from otafl.scenario import Point, Scenario, expand, load_scenario
from otafl.sweeping.planning import hash_sources, name_points
from otafl.sweeping.store import Store

ROUNDS = [0, 2, 4]
TWO_AXES = {"channel.snr_db": [0, 10.5, 20], "power.name": ["gbma", "ci"]}


def make_scenario(sweep: dict | None = None, **keys: object) -> Scenario:
    training = {"rounds": 4, "eval_every": 2}
    base = {"name": "t", "trials": 2, "devices": {"count": 3}, "training": training}
    return load_scenario(base | keys | ({"sweep": sweep} if sweep else {}))


def compute_value(point: int, trial: int, round: int, device: int = 0) -> float:
    """A number that says where it belongs."""
    return 1000 * point + 100 * trial + 10 * round + device


def record(points: list[Point], rounds: list[int] = ROUNDS, trials: int = 2) -> Record:
    """Every value is `compute_value` of its place."""
    devices = points[0].scenario.devices.count
    index = np.array([p.index for p in points])[:, None, None, None]
    each = compute_value(
        index,
        np.arange(trials)[:, None, None],
        np.array(rounds)[:, None],
        np.arange(devices),
    ).astype(float)
    variables = {
        "test_accuracy": each[..., 0],
        "tx_energy_j": each,
        "stop_round": np.full((len(points), trials), np.nan),
    }
    return Record(list(rounds), variables)


def make_parts(scenario: Scenario, groups: list[list[int]] | None = None) -> list[xr.Dataset]:
    """Parts of the groups of points; of each point alone if none are given."""
    points = expand(scenario)
    names = name_points(points, hash_sources(points))
    parts = []
    for group in groups or [[p.index] for p in points]:
        chosen = [points[i] for i in group]
        own = [names[i] for i in group]
        parts.append(to_dataset(record(chosen), chosen, scenario, names=own))
    return parts


def make_whole(scenario: Scenario, groups: list[list[int]] | None = None) -> xr.Dataset:
    """The parts of the groups, combined."""
    return combine(make_parts(scenario, groups), describe_sweep(scenario))


def write_folder(
    scenario: Scenario, folder: Path, groups: list[list[int]] | None = None
) -> list[Path]:
    """Write the folder of a sweep with a file for each group, and return these files."""
    points = expand(scenario)
    names = name_points(points, hash_sources(points))
    attributes = describe_sweep(scenario)
    sweep = SweepFile(attributes=attributes, names=names, trials=scenario.trials, sources={})
    store = Store(folder)
    store.begin(sweep)
    paths = []
    for number, part in enumerate(make_parts(scenario, groups)):
        paths.append(store.get_path("parts", f"{number:016x}"))
        write_part(part, paths[-1])
    return paths
