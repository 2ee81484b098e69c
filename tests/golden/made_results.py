"""Results with numbers put in by hand, as an engine would have recorded them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from otafl.results.dataset import Record, combine, describe_sweep, to_dataset
from otafl.results.files import write_part
from otafl.scenario import Point, expand, load_scenario

ROUNDS = [0, 2, 4]

Value = Callable[[Point, int, int], float]
"""(point, trial, round) -> accuracy; joules are 100 times the round plus the device."""


def accuracy(point: Point, trial: int, round: int) -> float:
    """Every place its own."""
    return 0.001 * point.index + 0.01 * trial + 0.1 * round


def made(sweep: dict | None = None, value: Value = accuracy, **keys: object) -> xr.Dataset:
    """A combined result: test_accuracy, tx_energy_j, stop_round and wall_time_s of every point."""
    training = {"rounds": ROUNDS[-1], "eval_every": 2}
    tree = {"name": "made", "trials": 3, "devices": {"count": 2}, "training": training} | keys
    scenario = load_scenario(tree | ({"sweep": sweep} if sweep else {}))
    parts = []
    for point in expand(scenario):
        one = point.scenario
        shape = (1, one.trials, len(ROUNDS))
        table = [[value(point, trial, r) for r in ROUNDS] for trial in range(one.trials)]
        joules = 100.0 * np.array(ROUNDS)[:, None] + np.arange(one.devices.count)
        variables = {
            "test_accuracy": np.array([table]),
            "tx_energy_j": np.broadcast_to(joules, (*shape, one.devices.count)).copy(),
            "stop_round": np.full(shape[:2], np.nan),
            "wall_time_s": np.random.default_rng().random(shape),
        }
        parts.append(to_dataset(Record(list(ROUNDS), variables), [point], scenario))
    return combine(parts, describe_sweep(scenario))


def written(ds: xr.Dataset, path: Path) -> Path:
    """The result as a file."""
    write_part(ds, path)
    return path
