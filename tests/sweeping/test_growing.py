"""A sweep with more values on its axes, or more trials, goes on from what its folder holds."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario
from support.marks import first_is_fast
from support.stopped_sweeps import same

import otafl
from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results import origins
from otafl.running import stack_run
from otafl.scenario import Scenario, expand
from otafl.sweeping import stack_job

pytestmark = pytest.mark.exact

SHORT = {"training.rounds": 2, "engine.dtype": "float64", "devices.count": 3}
BEFORE = {"channel.snr_db": [0, 20], "csi.name": ["perfect", "error"]}
MORE = {"channel.snr_db": [20, 5, 0], "csi.name": ["perfect", "pilots", "error"]}
OLD = {"snr_db": [0, 20], "csi": ["perfect", "error"], "trial": [0, 1]}


def grown(sweep: dict[str, Any] | None = None, trials: int = 2, **keys: Any) -> Scenario:
    return scenario(SHORT | {"sweep": BEFORE if sweep is None else sweep, "trials": trials} | keys)


class Trials:
    """Takes note of which points and trials run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[tuple[tuple[Any, ...], int]] = []
        true = stack_run.run_stack

        def noted(points: Any, progress: Any, trials: Any, *rest: Any) -> Any:
            self.ran += [(tuple(p.coords.values()), t) for p in points for t in trials]
            return true(points, progress, trials, *rest)

        monkeypatch.setattr(stack_job, "run_stack", noted)

    def take(self) -> set[tuple[tuple[Any, ...], int]]:
        ran, self.ran = self.ran, []
        assert len(ran) == len(set(ran))
        return set(ran)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(monkeypatch)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep, to copy."""
    place = tmp_path_factory.mktemp("kept")
    sweeping.sweep(grown(), place / "s")
    return place


@functools.cache
def whole(sweep: bool, trials: int) -> xr.Dataset:
    """A sweep that began with more values, and so many trials."""
    return sweeping.run(grown(MORE if sweep else BEFORE, trials))


def every(one: Scenario) -> set[tuple[tuple[Any, ...], int]]:
    return {(tuple(p.coords.values()), t) for p in expand(one) for t in range(one.trials)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "count"), first_is_fast([(True, 3), (True, 2), (False, 5)]), ids=str
)
def test_a_grown_sweep_computes_what_is_new(
    more: bool, count: int, kept: Path, tmp_path: Path, trials: Trials
) -> None:
    """The old points' numbers stay to the last bit; the whole is that of a sweep that began so."""
    place = shutil.copytree(kept, tmp_path / "kept") / "s"
    now, before, told = grown(MORE if more else BEFORE, count), open_results(place), list[str]()
    after = sweeping.sweep(now, place, tell=told.append).load()
    assert trials.take() == every(now) - every(grown())
    assert told == [
        f"{place}: the sweep has grown from 4 points of 2 trials to {len(expand(now))} points of "
        f"{count} trials; what is finished stays"
    ]
    assert after.attrs["complete"] == 1
    same(after.sel(OLD), before)
    same(after, whole(more, count), tolerance=1e-9)
    numbers = {point for one in origins.read(after.attrs) for point in one.points}
    assert numbers == set(range(len(expand(now))))
    same(open_results(place), after)
    trials.take()
    same(sweeping.sweep(now, place, tell=told.append), after)
    assert trials.take() == set()


@pytest.mark.slow
def test_models_come_along(tmp_path: Path) -> None:
    """Under their points' new numbers, with those of the new trials."""
    keys = {"output.save_models": True}
    now = grown(MORE, trials=3, **keys)
    sweeping.sweep(grown(**keys), tmp_path / "s")
    sweeping.sweep(now, tmp_path / "s", tell=print)
    sweeping.sweep(now, tmp_path / "whole")
    x = np.random.default_rng(0).normal(size=(4, 64))
    for snr_db, csi, trial in ((0, "error", 0), (20, "perfect", 2), (5, "pilots", 1)):
        logits = []
        for result in ("s", "whole"):
            module = otafl.load_model(tmp_path / result, trial=trial, snr_db=snr_db, csi=csi)
            tensor = next(module.parameters()).new_tensor(x)
            logits.append(module(tensor).detach().numpy())
        np.testing.assert_allclose(*logits, rtol=1e-9, atol=1e-9)


NOT_GROWN = {
    "value gone": grown(BEFORE | {"channel.snr_db": [0, 10]}),
    "seed": grown(MORE, seed=8),
}


@pytest.mark.parametrize("name", NOT_GROWN)
def test_what_is_not_grown_is_refused_and_stays(name: str, kept: Path) -> None:
    before = {path: path.read_bytes() for path in kept.rglob("*.nc")}
    with pytest.raises(
        UserError, match="only more values on its axes and more trials continue from"
    ):
        sweeping.sweep(NOT_GROWN[name], kept / "s")
    assert {path: path.read_bytes() for path in kept.rglob("*.nc")} == before


def test_one_more_trial_of_a_scenario_without_axes(tmp_path: Path, trials: Trials) -> None:
    before = sweeping.sweep(grown({}, 1), tmp_path / "s").load()
    trials.take()
    after = sweeping.sweep(grown({}, 2), tmp_path / "s", tell=print)
    assert trials.take() == {((), 1)}
    same(after.sel(trial=[0]), before)
