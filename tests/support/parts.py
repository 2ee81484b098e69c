"""Records whose values say where they belong, and parts of sweeps that hold them."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.results.dataset import to_dataset
from otafl.results.record import Record
from otafl.scenario import Point, Scenario, expand, load_scenario

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
    points = expand(scenario)
    groups = groups or [[p.index] for p in points]
    return [
        to_dataset(record(chosen), chosen, scenario)
        for chosen in ([points[i] for i in group] for group in groups)
    ]
