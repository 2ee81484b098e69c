"""Sweeps: resumed = uninterrupted, in any plan and any split of the trials, and points that do not
disturb each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import ALGORITHMS, over_fading, scenario
from support.marks import first_is_fast

from otafl import sweeping
from otafl.results.files import read_part
from otafl.scenario import Scenario, expand
from otafl.sweeping.planning import hash_sources, name_points

# examples: two points of a sweep, and few methods
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "checkpoint_every"),
    # examples: a method without state of its devices and one with
    [("fedavg", 1), ("fedavg", 0), ("fedrlr", 1)],
)
def test_resumed_is_uninterrupted(algorithm: str, checkpoint_every: int, tmp_path: Path) -> None:
    """Stopped in round 2 of 4 of the second of two stacks, which begins again, or goes on from its
    checkpoint."""
    transport = over_fading(algorithm)
    # examples: two points of a sweep, and few methods
    axis = {"csi.name": ["perfect", "error"]}
    one = scenario({"algorithm": algorithm, "transport": transport, "sweep": axis})
    whole = sweeping.sweep(one, tmp_path / "whole")
    stop = Kill(after=6)
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, tmp_path / "killed", stop, checkpoint_every=checkpoint_every)
    (kept,) = (tmp_path / "killed" / "parts").glob("*.nc")
    first = kept.read_bytes()
    assert read_part(tmp_path / "killed" / "interrupted.nc").attrs["complete"] == 0

    rest = Kill(after=-1)
    resumed = sweeping.sweep(one, tmp_path / "killed", rest, checkpoint_every=checkpoint_every)
    assert rest.calls == (2 if checkpoint_every else 4)  # the finished stack did not run again
    assert kept.read_bytes() == first
    same(resumed, whole)
    assert resumed.attrs["complete"] == 1


@pytest.mark.parametrize("place", first_is_fast(["disk", "host"]))
def test_a_checkpoint_of_devices_elsewhere(place: str, tmp_path: Path) -> None:
    """Devices' models in the host's memory, or on disk."""
    one = scenario({"algorithm": "fedrlr", "engine.device_state": place})
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, tmp_path, Kill(after=2), checkpoint_every=1)
    rest = Kill(after=-1)
    same(sweeping.sweep(one, tmp_path, rest, checkpoint_every=1), sweeping.run(one))
    assert rest.calls == 2


def list_stacks(one: Scenario) -> list[sweeping.Stack]:
    points = expand(one)
    return sweeping.plan(points, name_points(points, hash_sources(points)), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "transport", "sweep"),
    [
        # examples: two points of a sweep, and few methods
        *((name, "over_the_air", AXES) for name in ("scaffold", "fedavg", "fedrlr")),
        *((name, "ideal", SEEDS) for name in ALGORITHMS),
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
