"""A sweep with more values on its axes, or more trials, goes on from what its folder holds."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario
from contract.test_sweeps import Kill, same
from support.marks import first_is_fast

import otafl
from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results import origins, packing
from otafl.results.files import read_part, write_part
from otafl.running import checkpoints, stack_run
from otafl.scenario import Scenario, expand
from otafl.sweeping import growing, locks, resuming, stack_job
from otafl.sweeping.folder import Folder

pytestmark = pytest.mark.exact

SHORT = {"training.rounds": 2, "trials": 2, "engine.dtype": "float64", "devices.count": 3}
BEFORE = {"channel.snr_db": [0, 20], "csi.name": ["perfect", "error"]}
MORE = {"channel.snr_db": [20, 5, 0], "csi.name": ["perfect", "pilots", "error"]}


def grown(sweep: dict[str, Any] | None = None, trials: int = 2, **keys: Any) -> Scenario:
    return scenario(SHORT | {"sweep": BEFORE if sweep is None else sweep, "trials": trials} | keys)


class Trials:
    """Takes note of which points and trials run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: set[tuple[tuple[Any, ...], int]] = set()
        true = stack_run.run_stack

        def noted(points: Any, progress: Any, trials: Any, *rest: Any) -> Any:
            self.ran |= {(tuple(p.coords.values()), t) for p in points for t in trials}
            return true(points, progress, trials, *rest)

        monkeypatch.setattr(stack_job, "run_stack", noted)

    def taken(self) -> set[tuple[tuple[Any, ...], int]]:
        ran, self.ran = self.ran, set()
        return ran


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(monkeypatch)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep, to copy."""
    folder = tmp_path_factory.mktemp("kept") / "s"
    sweeping.sweep(grown(), folder)
    return folder


@functools.cache
def whole(trials: int) -> xr.Dataset:
    """A sweep that began with more values, and so many trials."""
    return sweeping.run(grown(MORE, trials))


def every(one: Scenario) -> set[tuple[tuple[Any, ...], int]]:
    return {(tuple(p.coords.values()), t) for p in expand(one) for t in range(one.trials)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("now", "packs"),
    [
        (grown(MORE), False),
        (grown(BEFORE, trials=5), False),
        (grown(MORE, trials=3), False),
        (grown(MORE, trials=3), True),
        (grown(MORE), True),
    ],
    ids=["points", "trials", "both", "both, packed", "points, packed"],
)
def test_a_grown_sweep_computes_what_is_new(
    now: Scenario,
    packs: bool,
    kept: Path,
    tmp_path: Path,
    trials: Trials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old points' numbers stay to the last bit; the whole is that of a sweep that began so."""
    if packs:
        monkeypatch.setattr(packing, "AT_ONCE", 2)
        packing.pack(shutil.copytree(kept, tmp_path / "s"), finished=True)
    else:
        shutil.copytree(kept, tmp_path / "s")
    assert bool(list((tmp_path / "s" / "packs").glob("*"))) == packs
    before = open_results(tmp_path / "s")
    said: list[str] = []
    after = sweeping.sweep(now, tmp_path / "s", tell=said.append).load()
    assert trials.taken() == every(now) - every(grown())
    points, count = len(expand(now)), now.trials
    assert said == [
        f"{tmp_path / 's'}: the sweep has grown from 4 points of 2 trials to {points} points of "
        f"{count} trials; what is finished stays"
    ]
    assert after.attrs["complete"] == 1
    same(after.sel(snr_db=[0, 20], csi=["perfect", "error"], trial=[0, 1]), before)
    alone = sweeping.run(now) if now.sweep == BEFORE else whole(now.trials)
    same(after, alone, tolerance=1e-9)
    made = origins.read(after.attrs, ())  # how many ran side by side may differ
    assert sorted(point for one in made for point in one.points) == list(range(points))
    trials.taken()
    same(sweeping.sweep(now, tmp_path / "s", tell=said.append), after)
    assert trials.taken() == set()
    left = {path.name for path in (tmp_path / "s").iterdir()}
    assert left <= {"plan.json", "scenario.yaml", "parts", "packs"}
    assert len(said) == 1


@pytest.mark.slow
def test_it_grows_again_before_it_is_finished(tmp_path: Path, trials: Trials) -> None:
    """Interrupted after a stack and a batch, with what is running kept, and grown twice."""
    one = grown(**{"engine.memory_gb": 1e-9})
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, tmp_path / "s", Kill(after=7), checkpoint_every=1)
    done = trials.taken()
    second = grown(MORE, trials=3, **{"engine.memory_gb": 1e-9})
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(second, tmp_path / "s", Kill(after=5))
    done |= trials.taken()
    last = grown(MORE, trials=4, **{"engine.memory_gb": 1e-9})
    after = sweeping.sweep(last, tmp_path / "s", tell=lambda text: None)
    again = trials.taken() & done
    assert len(again) <= 2  # what was running as it was interrupted
    same(after, sweeping.run(last), tolerance=1e-9)


@pytest.mark.slow
def test_models_come_along(tmp_path: Path) -> None:
    """Under their points' new numbers, with those of the new trials."""
    keys = {"output.save_models": True}
    sweeping.sweep(grown(**keys), tmp_path / "s")
    now = grown(MORE, trials=3, **keys)
    sweeping.sweep(now, tmp_path / "s", tell=lambda text: None)
    sweeping.sweep(now, tmp_path / "whole")
    x = np.random.default_rng(0).normal(size=(4, 64))
    for snr_db, csi, trial in ((0, "error", 0), (20, "perfect", 2), (5, "pilots", 1)):
        sel = {"snr_db": snr_db, "csi": csi}
        logits = []
        for folder in ("s", "whole"):
            module = otafl.load_model(tmp_path / folder, trial=trial, **sel)
            tensor = next(module.parameters()).new_tensor(x)
            logits.append(module(tensor).detach().numpy())
        np.testing.assert_allclose(*logits, rtol=1e-9, atol=1e-9)


NOT_GROWN = {
    "value gone": grown(BEFORE | {"channel.snr_db": [0, 10]}),
    "order of axes": grown(dict(reversed(BEFORE.items()))),
    "trials": grown(MORE, trials=1),
    "axis gone": grown({"channel.snr_db": [0, 20, 30]}),
    "axis more": grown(BEFORE | {"training.batch_size": [2]}),
    "seed": grown(MORE, seed=8),
    "rounds": grown(MORE, **{"training.rounds": 3}),
}


@pytest.mark.parametrize("name", first_is_fast(NOT_GROWN, fast=3))
def test_what_is_not_grown_is_refused_and_stays(name: str, kept: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    with pytest.raises(
        UserError, match="only more values on its axes and more trials continue from"
    ):
        sweeping.sweep(NOT_GROWN[name], kept)
    after = {path: path.stat().st_mtime_ns for path in kept.rglob("*") if "locks" not in str(path)}
    assert after.items() <= before.items() | {kept: kept.stat().st_mtime_ns}.items()
    assert len(list(kept.glob("parts/*"))) == 2


def test_one_more_trial_is_computed_alone(tmp_path: Path, trials: Trials) -> None:
    one, now = (grown({}, trials=n, **{"training.rounds": 1}) for n in (1, 2))
    before = sweeping.sweep(one, tmp_path).load()
    trials.taken()
    after = sweeping.sweep(now, tmp_path, tell=lambda text: None)
    assert trials.taken() == {((), 1)}
    same(after.sel(trial=[0]), before)


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_killed_while_it_grows(
    moved: int, kept: Path, tmp_path: Path, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While files are made the old sweep is whole; while they take their places the next call goes
    on with that, and the old scenario is then refused."""
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    before = open_results(tmp_path)
    now, true, calls = grown(MORE, trials=3), os.replace, [0]

    def killed(source: Any, target: Any) -> None:
        if f"/{growing.GROWING}/" in str(source) and f"/{growing.GROWING}/" not in str(target):
            calls[0] += 1
            if calls[0] > moved:
                raise KeyboardInterrupt
        true(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(growing.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            sweeping.sweep(now, tmp_path)
    trials.taken()
    with pytest.raises(UserError, match=r"holds .* not of this one"):
        sweeping.sweep(grown(), tmp_path)
    after = sweeping.sweep(now, tmp_path)
    assert trials.taken() == every(now) - every(grown())
    same(after.sel(snr_db=[0, 20], csi=["perfect", "error"], trial=[0, 1]), before)
    same(after, whole(3), tolerance=1e-9)


@pytest.mark.slow
def test_killed_before_its_files_are_whole(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    before = open_results(tmp_path)
    now = grown(MORE, trials=3)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(growing, "plan", killed)
        with pytest.raises(KeyboardInterrupt):
            sweeping.sweep(now, tmp_path)
    same(sweeping.sweep(grown(), tmp_path), before)
    same(sweeping.sweep(now, tmp_path, tell=lambda text: None), whole(3), tolerance=1e-9)


def test_a_folder_in_which_another_program_computes_does_not_grow(kept: Path) -> None:
    with (
        locks.hold_lock(Folder(kept).get_lock_path(0)),
        pytest.raises(UserError, match="another program computes there; wait for it"),
    ):
        sweeping.sweep(grown(MORE), kept)


@pytest.mark.slow
def test_a_program_that_began_before_does_not_write_into_a_grown_sweep(tmp_path: Path) -> None:
    """Between two stacks it holds no lock, so it looks at the plan with each."""

    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(grown(), tmp_path, Kill(after=3))
    job = stack_job.Job(grown(), sweeping.plan(expand(grown()))[1], tmp_path)
    sweeping.sweep(grown(trials=3), tmp_path, tell=lambda text: None)
    outcome = stack_job.run_job(job, lambda *_: None)
    assert outcome.state == "failed"
    assert "is of another scenario by now" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    ["versions", *(pytest.param(one, marks=pytest.mark.slow) for one in ("data", "damaged"))],
)
def test_earlier_trials_that_do_not_fit_are_computed_anew(
    what: str, tmp_path: Path, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of a point are of one program and one data set, and a sentence says so."""
    sweeping.sweep(grown({"channel.snr_db": [0]}), tmp_path / "s")
    trials.taken()
    now, said = grown({"channel.snr_db": [0]}, trials=3), list[str]()
    if what == "versions":
        path = Folder(tmp_path / "s").get_part_path(0)
        part = read_part(path)
        other = part.attrs["origins"].replace(stack_job.get_versions()["torch"], "other")
        write_part(part.assign_attrs(origins=other), path)
    if what == "data":
        monkeypatch.setattr(resuming.data, "compute_fingerprint", lambda source: "other")
    if what == "damaged":
        true = growing._take_places

        def damaged(home: Folder) -> None:
            true(home)
            home.get_earlier_path(0).write_bytes(b"no")

        monkeypatch.setattr(growing, "_take_places", damaged)
    got = sweeping.sweep(now, tmp_path / "s", tell=said.append)
    assert trials.taken() == every(now)
    (told,) = [text for text in said if "computed again" in text]
    assert "2 earlier trials of stack 1 computed again (" in told
    assert {"versions": "torch", "data": "data", "damaged": "is no result of otafl"}[what] in told
    monkeypatch.undo()
    same(got, sweeping.run(now), tolerance=1e-9)


@pytest.mark.slow
def test_timelines_and_links_of_other_lengths_join(tmp_path: Path) -> None:
    """What has another size in each trial is padded, as in a stack."""
    keys = {
        "output.save_link": True,
        "output.save_timeline": True,
        "training.rounds": 6,
        "training.stop_at": {"test_accuracy": 0.2},
        "algorithm.learning_rate": 0.5,
    }
    axis = {"channel.snr_db": [10]}
    sweeping.sweep(grown(axis, **keys), tmp_path)
    now = grown(axis, trials=5, **keys)
    got = sweeping.sweep(now, tmp_path, tell=lambda text: None)
    assert isinstance(got, xr.Dataset)
    same(got, sweeping.run(now), tolerance=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        *("../victim", "/tmp/victim", "parts/../../victim", "parts/.hidden", "", "a/b"),
        *("models/pretrained.pt", "parts/./../../.v.0123456789ab-01234567-9.tmp"),
    ],
)
@pytest.mark.parametrize("key", first_is_fast(["gone", "made"]))
def test_a_list_names_files_of_the_folder_alone(
    name: str, key: str, kept: Path, tmp_path: Path
) -> None:
    """The list may be someone else's, and must not remove or replace files elsewhere."""
    folder, victim = tmp_path / "s", tmp_path / "victim"
    shutil.copytree(kept, folder)
    victim.write_text("mine")
    (folder / "growing").mkdir()
    (folder / "growing" / "files.json").write_text(
        json.dumps({"made": [], "gone": []} | {key: [name]})
    )
    with pytest.raises(UserError, match="which is no file of a sweep"):
        sweeping.sweep(grown(MORE), folder)
    assert victim.read_text() == "mine"


@pytest.mark.slow
def test_what_parts_are_said_to_be_does_not_stop_growth(kept: Path, tmp_path: Path) -> None:
    """A copy under another name, and a part that names points and stacks that it does not hold."""
    folder = tmp_path / "s"
    shutil.copytree(kept, folder)
    shutil.copy(folder / "parts" / "00001.nc", folder / "parts" / "00001 (copy).nc")
    path = folder / "parts" / "00000.nc"
    part = read_part(path)
    (made,) = json.loads(part.attrs["origins"])
    told = json.dumps([made | {"points": "0-900"}])
    write_part(part.assign_attrs(origins=told, stacks=[0, 77]), path)
    same(sweeping.sweep(grown(MORE, 3), folder), whole(3), tolerance=1e-9)


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_more_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack that was running keeps its rounds; the new trials are a batch of their own."""
    axis, took = {"channel.snr_db": [0, 20]}, list[int]()
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(grown(axis), tmp_path, Kill(after=1), checkpoint_every=1)
    true = checkpoints.Checkpoint.load

    def noted(checkpoint: Any, *rest: Any) -> Any:
        kept = true(checkpoint, *rest)
        took.append(0 if kept is None else kept.rounds)
        return kept

    monkeypatch.setattr(checkpoints.Checkpoint, "load", noted)
    said: list[str] = []
    now = grown(axis, trials=3)
    got = sweeping.sweep(now, tmp_path, checkpoint_every=1, tell=said.append)
    assert took == [1, 0]
    assert len(said) == 1
    same(got, sweeping.run(now), tolerance=1e-9)
