"""Sweeps: the same numbers however points and trials are divided into stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario

from otafl import sweeping
from otafl.scenario import Scenario, expand
from otafl.sweeping.planning import hash_sources, name_points

AXES: dict[str, Any] = {"channel.snr_db": [0, 20], "power.name": ["gbma", "tci"]}
SEEDS: dict[str, Any] = {"seed": [7, 8]}
"""For a transport without a channel, over which points of `AXES` are the same."""


def same(one: xr.Dataset, other: xr.Dataset, tolerance: float = 0.0) -> None:
    """All but the computing time; some trial ends with a finite loss, lest all be the same NaN."""
    assert set(one.variables) == set(other.variables)
    if "train_loss" in one:
        assert np.isfinite(one["train_loss"].isel(round=-1)).any()
    for name in set(one.variables) - {"wall_time_s"}:
        if tolerance and one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], rtol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


class Kill:
    """Presses Ctrl-C once, after so many rounds in all."""

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, done: int, total: int, note: str) -> None:
        self.calls += 1
        assert 0 < done <= total
        if done == self.after:
            raise KeyboardInterrupt


def list_stacks(one: Scenario) -> list[sweeping.Stack]:
    points = expand(one)
    return sweeping.plan(points, name_points(points, hash_sources(points)), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "transport", "sweep"),
    [
        *((name, "over_the_air", AXES) for name in ("scaffold", "fedrlr")),
        *((name, "ideal", SEEDS) for name in ("fedpac", "fedem")),
    ],
)
def test_split_by_memory_is_whole(algorithm: str, transport: str, sweep: dict[str, Any]) -> None:
    """With memory for one trial at a time every trial of every point runs alone."""
    keys = {
        "algorithm": algorithm,
        "transport": transport,
        "sweep": sweep,
        "engine.dtype": "float64",
    }
    little = scenario(keys | {"engine.memory_gb": 1e-9})
    alone, together = (list_stacks(one) for one in (little, scenario(keys)))
    assert [stack.trials for stack in alone[:3]] == [[0], [1], [2]]
    assert all(len(stack.rows) == 1 for stack in alone)
    assert all(stack.trials == [0, 1, 2] for stack in together)
    same(sweeping.run(little), sweeping.run(scenario(keys)), tolerance=1e-8)


def test_trials_of_different_length_join() -> None:
    """Trials that run apart and stop at different rounds: the later records of the one that stopped
    first are NaN, as in a stack."""
    keys = {
        "engine.dtype": "float64",
        "transport": "ideal",
        "algorithm.learning_rate": 0.5,
        "training.local_steps": 8,
        "training.rounds": 12,
        "training.stop_at": {"test_accuracy": 0.35},
    }
    together = sweeping.run(scenario(keys))
    apart = sweeping.run(scenario(keys | {"engine.memory_gb": 1e-9}))
    stopped = together["stop_round"].values
    assert len(set(stopped[np.isfinite(stopped)])) > 1
    same(apart, together, tolerance=1e-8)
