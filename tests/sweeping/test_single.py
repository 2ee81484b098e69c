"""A sweep that ends as one file: what is written, interruptions while it puts the finished stacks
together, and a file that is there already.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
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
from otafl.results import models as trained
from otafl.results.files import read_part, write_part
from otafl.scenario import Scenario
from otafl.sweeping import growing, resuming, single, stack_job

pytestmark = pytest.mark.exact

TWO = {"training.batch_size": [2, 3]}
"""A sweep of two stacks."""


@pytest.mark.parametrize(("sweep", "files"), first_is_fast([({}, 1), (TWO, 3)]))
def test_a_single_stack_is_written_once(
    sweep: dict[str, Any], files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if its part is written too; what is read is what is returned, and has the attributes
    that a folder with a part has."""
    written: list[Path] = []
    true = stack_job.write_part

    def counted(dataset: Any, path: Path) -> None:
        written.append(path)
        true(dataset, path)

    for module in (stack_job, single):
        monkeypatch.setattr(module, "write_part", counted)
    one, out = scenario({"training.rounds": 2, "sweep": sweep}), tmp_path / "out.nc"
    result = sweeping.run(one, out)
    assert len(written) == files
    assert written[-1] == out
    for other in (open_results(out), sweeping.run(one)):
        same(result, other)
    folder = sweeping.sweep(one, tmp_path / "folder")
    same(result, folder)
    assert result.attrs.keys() == folder.attrs.keys()
    assert [path.name for path in tmp_path.iterdir() if path.name != "folder"] == ["out.nc"]


def test_a_part_is_taken_up_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    """That an earlier call has left beside the file; how often its rounds are computed."""
    one = scenario({"training.rounds": 2})
    whole = sweeping.sweep(one, tmp_path / "folder").load()
    for damage, computed in ((None, 0), (b"text", 2)):
        out = tmp_path / f"{computed}.nc"
        shutil.copytree(tmp_path / "folder", sweeping.get_unfinished_folder(out))
        (part,) = sweeping.get_unfinished_folder(out).glob("parts/*")
        if damage is not None:
            part.write_bytes(damage)
        calls: list[int] = []
        same(sweeping.run(one, out, lambda done, *_, calls=calls: calls.append(done)), whole)
        assert len(calls) == computed
        same(open_results(out), whole)
        assert not sweeping.get_unfinished_folder(out).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "sweep"),
    [
        ("removing", TWO),
        ("removing", {}),
        *(pytest.param(one, TWO, marks=pytest.mark.slow) for one in ("writing", "half removed")),
    ],
)
def test_an_interrupted_end_loses_no_models(
    place: str, sweep: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call makes the result, with the models of all stacks."""
    keys = {"training.rounds": 2, "trials": 1, "output.save_models": True}
    one = scenario({**keys, "sweep": sweep})
    whole = sweeping.run(one, tmp_path / "whole.nc")
    out, remove = tmp_path / "out.nc", single.remove_own

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def removing(path: Path) -> None:
        if path.name.startswith(".out.unfinished."):
            if place == "half removed":
                next(path.glob("parts/*")).unlink()
            raise KeyboardInterrupt
        remove(path)

    if place == "writing":
        monkeypatch.setattr(single, "write_part", interrupted)
    else:
        monkeypatch.setattr(single, "remove_own", removing)
    with pytest.raises(KeyboardInterrupt):
        sweeping.run(one, out)
    monkeypatch.undo()
    same(sweeping.run(one, out), whole)
    same(open_results(out), whole)
    names = [path.name for path in trained.get_models_folder(tmp_path / "whole.nc").iterdir()]
    assert sorted(path.name for path in trained.get_models_folder(out).iterdir()) == sorted(names)
    assert len(names) == (2 if sweep else 1)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "out.nc",
        trained.get_models_folder(out).name,
    }
    assert not sweeping.get_unfinished_folder(out).exists()
    assert not list(tmp_path.glob(".*"))


def test_names_that_otafl_uses_while_it_works_may_be_taken(tmp_path: Path) -> None:
    one, kept = scenario({}), tmp_path / "out.unfinished"
    (tmp_path / ".out.unfinished.removed").write_text("mine")
    (tmp_path / ".out.unfinished.x.removed").write_text("mine")
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")
    os.mkfifo(kept / "run.json")
    sweeping.run(one, tmp_path / "out.nc")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        ".out.unfinished.removed",
        ".out.unfinished.x.removed",
        "out.nc",
        "out.unfinished",
    ]
    assert [path.name for path in kept.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["out.unfinished", "out.models", "out.track"])
def test_a_link_in_place_of_a_folder_beside_the_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "00000.pt").write_text("mine")
    (tmp_path / name).symlink_to("victim")
    one = scenario({"output.save_models": True})
    with pytest.raises(UserError, match=rf"{name}: .*got a link to victim"):
        sweeping.run(one, tmp_path / "out.nc", restart=True)
    assert (tmp_path / "victim" / "00000.pt").read_text() == "mine"


def test_a_file_of_the_user_s_among_models_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "out.models").mkdir()
    (tmp_path / "out.models" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"out\.models/notes\.txt: is no file of otafl"):
        sweeping.run(scenario({"output.save_models": True}), tmp_path / "out.nc")
    sweeping.run(scenario({}), tmp_path / "out.nc")
    assert (tmp_path / "out.models" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", [Path.symlink_to, Path.hardlink_to])
def test_a_link_at_the_result_s_name_is_replaced_and_not_followed(
    kind: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    victim, out = tmp_path / "victim.nc", tmp_path / "out.nc"
    victim.write_text("climate")
    kind(out, victim)
    with pytest.raises(UserError, match="no result that can be read"):
        sweeping.run(scenario({}), out)
    sweeping.run(scenario({}), out, restart=True)
    assert victim.read_text() == "climate"
    assert open_results(out).attrs["complete"] == 1


SMALL = {"training.rounds": 2, "trials": 2, "engine.dtype": "float64", "devices.count": 3}
AXES = {"channel.snr_db": [0, 20], "csi.name": ["perfect", "error"]}
MORE = {"channel.snr_db": [20, 5, 0], "csi.name": ["perfect", "pilots", "error"]}


def small(sweep: dict[str, Any], trials: int = 2, **keys: Any) -> Scenario:
    return scenario(SMALL | {"sweep": sweep, "trials": trials} | keys)


class Calls:
    """The rounds that are computed, as a progress, and what is told."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.told: list[str] = []

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self.rounds.append(done)

    def run(self, one: Scenario, out: Path, **keys: Any) -> xr.Dataset:
        return sweeping.run(one, out, self, tell=self.told.append, **keys)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished file, to copy."""
    out = tmp_path_factory.mktemp("file") / "r.nc"
    sweeping.run(small(AXES), out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweep", "trials", "rounds"),
    [
        (MORE, 2, [5, 6, 7, 8, 9, 10]),
        (AXES, 3, [1, 2, 3, 4]),
        (MORE, 3, list(range(1, 11))),
    ],
    ids=["points", "trials", "both"],
)
def test_a_file_grows_as_a_folder_does(
    sweep: dict[str, Any], trials: int, rounds: list[int], file: Path, tmp_path: Path
) -> None:
    """What is finished keeps its bits; the whole is that of a sweep that began so."""
    out, calls = Path(shutil.copy(file, tmp_path)), Calls()
    before, now = open_results(out).load(), small(sweep, trials)
    after = calls.run(now, out).load()
    assert calls.rounds == rounds
    points = 9 if sweep == MORE else 4
    assert calls.told == [
        f"{out}: the sweep has grown from 4 points of 2 trials to {points} points of {trials} "
        "trials; what is finished stays"
    ]
    same(after.sel(snr_db=[0, 20], csi=["perfect", "error"], trial=[0, 1]), before)
    same(after, sweeping.run(now), tolerance=1e-9)
    same(after, open_results(out))
    assert [path.name for path in tmp_path.iterdir()] == ["r.nc"]


@pytest.mark.slow
@pytest.mark.parametrize("trials", [2, 4])
def test_a_file_without_axes_grows(trials: int, tmp_path: Path) -> None:
    out, calls = tmp_path / "r.nc", Calls()
    before = sweeping.run(small({}), out).load()
    after = calls.run(small({}, trials), out)
    assert calls.rounds == ([] if trials == 2 else [1, 2])
    same(after.isel(trial=[0, 1]), before)
    same(after, sweeping.run(small({}, trials)), tolerance=1e-9)


@pytest.mark.slow
def test_a_finished_file_stays_until_restart(tmp_path: Path) -> None:
    """Links, timelines and ragged device counts too."""
    keys = {"output.save_link": True, "output.save_timeline": True, "track": "jsonl"}
    one, out = small({"devices.count": [2, 4]}, **keys), tmp_path / "r.nc"
    before, calls = sweeping.run(one, out).load(), Calls()
    lines = [path.read_text() for path in sorted(tmp_path.glob("r.track/**/*.jsonl"))]
    same(calls.run(one, out).load(), before)
    assert calls.rounds == []
    assert calls.told == [f"{out}: is finished and stays; --restart computes it again"]
    assert len(lines) == 4
    assert [path.read_text() for path in sorted(tmp_path.glob("r.track/**/*.jsonl"))] == lines
    after = calls.run(one, out, restart=True)
    assert calls.rounds == [1, 2, 3, 4]
    assert float(after["wall_time_s"].sum()) != float(before["wall_time_s"].sum())


@pytest.mark.parametrize(
    ("what", "sweep"),
    first_is_fast([("torch", AXES), ("data", AXES), ("otafl", MORE), ("processor", AXES)]),
)
def test_a_file_that_was_made_otherwise_is_computed_anew(
    what: str, sweep: dict[str, Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls, other = Path(shutil.copy(file, tmp_path)), Calls(), "0123456789abcdef"
    if what == "torch":
        part = read_part(out)
        made = part.attrs["origins"].replace(stack_job.get_versions()["torch"], "2.0.1")
        write_part(part.assign_attrs(origins=made), out)
    if what == "data":
        monkeypatch.setattr(resuming.data, "compute_fingerprint", lambda source: other)
    if what == "otafl":  # its source, of one version
        monkeypatch.setattr(resuming, "hash_otafl", lambda: other)
    if what == "processor":
        write_part(read_part(out).assign_attrs(device_name="some GPU"), out)
    after = calls.run(small(sweep), out)
    assert calls.told == [f"{out}: is computed again, since it was made with other {what}"]
    assert len(calls.rounds) == (4 if sweep == AXES else 6)
    same(after, sweeping.run(small(sweep)))


SNRS = {"channel.snr_db": [0], "csi.name": ["perfect", "error"]}


@pytest.mark.parametrize(
    ("now", "differ"),
    [
        (small(AXES, seed=8), "seed"),
        (small(SNRS, trials=1), "trials, sweep"),
        (small(AXES, name="other", power="tci"), "power"),
        (
            small({}, power="tci", **{"channel.snr_db": 2, "training.batch_size": 3}),
            "channel.snr_db, power, training.batch_size, sweep",
        ),
        (
            small(SNRS, 1, seed=8, model="mlp", server="adam", **{"data.test": "per_device"}),
            "data.test, model.hidden, server, trials and 2 more",
        ),
    ],
)
def test_a_file_of_another_scenario_is_refused(
    now: Scenario, differ: str, file: Path, tmp_path: Path
) -> None:
    """Fails if it is replaced, or if the sentence lacks what is there, what differs or what to do.

    The file keeps its bytes; with `restart` it is replaced.
    """
    out, calls = Path(shutil.copy(file, tmp_path)), Calls()
    before = out.read_bytes()
    with pytest.raises(UserError) as refused:
        calls.run(now, out)
    assert str(refused.value) == (
        f"{out}: holds the result of another scenario, 'small', which differs in {differ}; "
        "give another file with --out, or replace this one with --restart (restart=True)"
    )
    assert (out.read_bytes(), calls.rounds, calls.told) == (before, [], [])
    assert [path.name for path in tmp_path.iterdir()] == ["r.nc"]


def test_restart_replaces_a_file_of_another_scenario(file: Path, tmp_path: Path) -> None:
    out, calls = Path(shutil.copy(file, tmp_path)), Calls()
    assert calls.run(small({}, seed=8), out, restart=True).attrs["seed"] == 8
    assert calls.told == []


def test_the_file_that_a_changed_scenario_is_named_after_is_replaced(tmp_path: Path) -> None:
    """And that is said; the same file is refused to a scenario of another name."""
    keys: dict[str, Any] = {"output.folder": str(tmp_path)}
    calls = Calls()
    out = sweeping.name_own_file(small({}, **keys))
    calls.run(small({}, **keys), out)
    assert calls.run(small({}, seed=8, **keys), out).attrs["seed"] == 8
    assert calls.told == [f"{out}: is computed again, since it was made with other seed"]
    other = small({}, name="other", seed=9, **keys)
    out.rename(sweeping.name_own_file(other))
    with pytest.raises(UserError, match="another scenario, 'small', which differs in seed"):
        calls.run(other, sweeping.name_own_file(other))


@pytest.mark.parametrize("text", [b"", b"\x89HDF\r\n\x1a\n"])
def test_a_file_without_a_result_is_replaced(text: bytes, tmp_path: Path) -> None:
    """Without a word: it is empty, or broken off."""
    out, calls = tmp_path / "r.nc", Calls()
    out.write_bytes(text)
    assert calls.run(small({}), out).attrs["complete"] == 1
    assert calls.told == []


def test_what_another_program_wrote_is_refused(tmp_path: Path) -> None:
    """A text, and a NetCDF file that is no result."""
    out, netcdf, calls = tmp_path / "r.nc", tmp_path / "weather.nc", Calls()
    out.write_text("name: small")
    xr.Dataset({"wind": ("hour", [1.0])}).to_netcdf(netcdf, engine="h5netcdf")
    for path in (out, netcdf):
        before = path.read_bytes()
        with pytest.raises(UserError) as refused:
            calls.run(small({}), path)
        assert str(refused.value) == (
            f"{path}: is there already, and no result that can be read; give another file with "
            "--out, or replace this one with --restart (restart=True)"
        )
        assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("trials", [2, 3])
def test_models_of_a_file_come_along(trials: int, tmp_path: Path) -> None:
    """Under their points' new numbers; those of other stacks are not taken for them."""
    keys = {"output.save_models": True}
    now, calls = small(MORE, trials, **keys), Calls()
    out, whole = tmp_path / "r.nc", tmp_path / "whole.nc"
    sweeping.run(small(AXES, **keys), out)
    calls.run(now, out)
    assert "the sweep has grown from 4 points" in calls.told[0]
    sweeping.run(now, whole)
    x = np.random.default_rng(0).normal(size=(4, 64))
    for snr_db, csi, trial in ((0, "error", 0), (20, "perfect", trials - 1), (5, "pilots", 1)):
        logits = []
        for result in (out, whole):
            module = otafl.load_model(result, trial=trial, snr_db=snr_db, csi=csi)
            tensor = next(module.parameters()).new_tensor(x)
            logits.append(module(tensor).detach().numpy())
        np.testing.assert_allclose(*logits, rtol=1e-9, atol=1e-9)
    first, second, *_ = trained.list_model_files(out)
    os.replace(first, second)
    calls.run(now, out)
    assert calls.told[1:] == [f"{out}: is computed again, since it was made with other models"]


MOVES = {2: 3, 3: 4}
"""Trials of the grown scenario -> files that take their places."""

SLOWLY = [
    pytest.param(moved, trials, marks=pytest.mark.slow)
    for trials, count in MOVES.items()
    for moved in range(count)
]


@pytest.mark.slow
@pytest.mark.parametrize(("moved", "trials"), [(1, 3), *SLOWLY])
def test_killed_while_a_file_grows(
    moved: int, trials: int, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is whole until the grown one replaces it, and the next call computes no more."""
    out, true, left = Path(shutil.copy(file, tmp_path)), os.replace, [moved]
    before, now, calls = open_results(out).load(), small(MORE, trials), Calls()

    def killed(source: Any, target: Any) -> None:
        if growing.GROWING in Path(source).parts and growing.GROWING not in Path(target).parts:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        true(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(growing.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            calls.run(now, out)
    same(open_results(out), before)
    assert calls.rounds == []
    copied = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-restart"))
    with pytest.raises(KeyboardInterrupt):
        sweeping.run(now, out, Kill(after=7 if trials == 2 else 3), tell=calls.told.append)
    same(open_results(out), before)
    after = calls.run(now, out)
    assert calls.rounds[0] == (7 if trials == 2 else 3)
    same(after.sel(snr_db=[0, 20], csi=["perfect", "error"], trial=[0, 1]), before)
    assert [path.name for path in tmp_path.iterdir()] == ["r.nc"]
    anew = Calls()
    same(anew.run(now, copied / "r.nc", restart=True), sweeping.run(now))
    assert anew.rounds == list(range(1, 7))


def test_what_a_file_names_is_not_imported(file: Path, tmp_path: Path) -> None:
    """It may be someone else's."""
    out, part = tmp_path / "r.nc", read_part(file)
    text = str(part.attrs["scenario"]).replace("name: gbma", "name: evil_module:policy")
    assert "evil_module" in text
    evil = part.assign_attrs(scenario=text, scenario_hash="0" * 64)
    write_part(evil, out)
    with pytest.raises(UserError, match="another scenario, 'small', which differs in power"):
        Calls().run(small(AXES), out)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_workers_share_a_run_as_they_share_a_sweep(tmp_path: Path) -> None:
    one = small(AXES)
    same(
        sweeping.run(one, tmp_path / "r.nc", workers=2),
        sweeping.sweep(one, tmp_path / "s", workers=2),
    )


@pytest.mark.parametrize("sweep", [{}, TWO])
def test_a_run_in_memory_writes_nothing(
    sweep: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made: list[str] = []
    true: Callable[..., Any] = Path.mkdir

    def noted(path: Path, *rest: Any, **keys: Any) -> None:
        made.append(str(path))
        true(path, *rest, **keys)

    monkeypatch.setattr(Path, "mkdir", noted)
    sweeping.run(scenario({"training.rounds": 1, "sweep": sweep}))
    assert made == list(map(str, tmp_path.iterdir())) == []
