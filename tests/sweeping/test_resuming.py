"""What was computed by another state of the user's own modules, or of the programs, is never mixed
with the rest without a word."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import scenario
from contract.test_sweeps import same
from support.command import call

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results import packing as packs
from otafl.results.files import read_part, write_part
from otafl.scenario import Scenario
from otafl.sweeping import plan_file, stack_job
from otafl.user_code import sources

pytestmark = pytest.mark.exact

POLICY = """\
import torch
from {helper} import SHARE

def f(link):
    amplitude = SHARE * (link.budget / 1e3)[:, None].sqrt()
    p = amplitude * torch.ones_like(link.h) * link.transmit_mask[:, None]
    return p, torch.ones_like(link.h[..., 0].real)
"""
MODULES = {"alone": "my_policy:f", "packed": "my_pack.policy:f"}


@pytest.fixture(params=MODULES)
def named(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy of the user's, in a file of the working folder or of a package there, whose numbers
    come from another file beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits are within a second
    (tmp_path / "my_pack").mkdir()
    (tmp_path / "my_pack" / "__init__.py").write_text("")
    (tmp_path / "my_pack" / "policy.py").write_text(POLICY.format(helper="my_pack.shares"))
    (tmp_path / "my_policy.py").write_text(POLICY.format(helper="my_shares"))
    (tmp_path / "bystander.py").write_text("x = 1\n")
    share(tmp_path, 0.5)
    yield MODULES[request.param]
    forget_modules()


def share(folder: Path, value: float) -> None:
    """Edit the user's modules, and forget them, as a new Python program has not imported them."""
    for file in ("my_pack/shares.py", "my_shares.py"):
        (folder / file).write_text(f"SHARE = {value}\n")
    forget_modules()


def forget_modules() -> None:
    for name in [one for one in sys.modules if one.startswith("my_")]:
        del sys.modules[name]
    sources._imported.clear()


def short(keys: dict[str, Any]) -> Scenario:
    return scenario({"training.rounds": 2, "trials": 1} | keys)


def changed_file(named: str) -> str:
    return "my_pack/shares.py" if "pack" in named else "my_shares.py"


class Rounds(list[int]):
    """Takes note of the rounds that are reported."""

    def __call__(self, done: int, total: int, note: str) -> None:
        self.append(done)


def stop_after(rounds: int) -> Callable[..., None]:
    def stop(done: int, total: int, note: str) -> None:
        if done == rounds:
            raise KeyboardInterrupt

    return stop


WAYS_OUT = ("undo the change", "--out", "--restart")


def check_refused(refused: pytest.ExceptionInfo[UserError], *words: str) -> None:
    """Check that a message says what has changed, and the three ways out."""
    assert all(word in str(refused.value) for word in (*words, "has changed since", *WAYS_OUT))


def test_an_edited_module_is_refused(named: str, tmp_path: Path) -> None:
    """Nothing that is finished is lost: undoing the change resumes, and --restart begins again."""
    one, folder = short({"sweep": {"power": ["gbma", named]}}), tmp_path / "s"
    calls, said = Rounds(), list[str]()
    before = sweeping.sweep(one, folder).load()
    (tmp_path / "bystander.py").write_text("x = 2\n")
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    share(tmp_path, 0.9)
    more = short({"sweep": {"power": ["gbma", named, "ci"]}})
    for changed in (one, more):
        with pytest.raises(UserError) as refused:
            sweeping.sweep(changed, folder, calls)
        check_refused(refused, changed_file(named), "1 of 2 stacks was")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path: files[path] for path in kept} == kept

    share(tmp_path, 0.5)
    same(sweeping.sweep(one, folder, calls, tell=said.append), before)
    assert (calls, said) == ([], [])
    share(tmp_path, 0.9)
    after = sweeping.sweep(one, folder, tell=said.append, restart=True)
    first, second = float(before["tx_energy_j"][1].sum()), float(after["tx_energy_j"][1].sum())
    assert second == pytest.approx(first * (0.9 / 0.5) ** 2, rel=1e-5)


@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_a_comment_is_no_change(named: str, tmp_path: Path) -> None:
    one, calls = short({"power": named}), Rounds()
    sweeping.run(one, tmp_path / "r.nc")
    sweeping.sweep(one, tmp_path / "s")
    text = (tmp_path / "my_shares.py").read_text()
    (tmp_path / "my_shares.py").write_text(f'"""Shares."""\n\n{text}  # a comment\n"more"\n')
    sweeping.run(one, tmp_path / "r.nc", calls, tell=list[str]().append)
    sweeping.sweep(one, tmp_path / "s", calls)
    assert calls == []


@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_an_edit_of_what_a_file_was_computed_by(named: str, tmp_path: Path) -> None:
    """A file that otafl named after the scenario is replaced, as if the scenario had changed."""
    one, said = short({"power": named}), list[str]()
    own = sweeping.name_own_file(one)
    for out in (tmp_path / "r.nc", own):
        share(tmp_path, 0.5)
        sweeping.run(one, out)
        kept = out.read_bytes()
        share(tmp_path, 0.9)
        if out == own:
            sweeping.run(one, out, tell=said.append)
            assert "my_shares.py" in said[0]
            continue
        with pytest.raises(UserError) as refused:
            sweeping.run(one, out)
        check_refused(refused, "my_shares.py")
        assert out.read_bytes() == kept


@pytest.mark.slow
@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_an_edit_of_what_a_pack_holds(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "AT_ONCE", 2)
    axes = {"power": ["gbma", named], "training.batch_size": [2, 3]}
    one = short({"sweep": axes})
    sweeping.sweep(one, tmp_path / "s")
    assert [path.parent.name for path in (tmp_path / "s").rglob("*.nc")] == ["packs"]
    share(tmp_path, 0.9)
    with pytest.raises(UserError) as refused:
        sweeping.sweep(one, tmp_path / "s")
    check_refused(refused, "my_shares.py", "2 of 4 stacks were")


@pytest.mark.slow
@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_an_edit_of_what_an_interrupted_run_names(named: str, tmp_path: Path) -> None:
    """A checkpoint is kept until the change is undone; without one, nothing is lost."""
    one, out = short({"power": named, "training.rounds": 4}), tmp_path / "r.nc"
    for checkpoint_every, expected in ((0, [1, 2, 3, 4]), (1, [3, 4])):
        with pytest.raises(KeyboardInterrupt):
            sweeping.run(one, out, stop_after(2), checkpoint_every, restart=True)
        if checkpoint_every:
            share(tmp_path, 0.9)
            with pytest.raises(UserError) as refused:
                sweeping.run(one, out, None, checkpoint_every)
            check_refused(refused, "my_shares.py", "1 of 1 stack was")
            share(tmp_path, 0.5)
        calls = Rounds()
        same(sweeping.run(one, out, calls, checkpoint_every), sweeping.run(one))
        assert calls == expected


@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_a_new_program_takes_the_module_as_it_is_now(named: str, tmp_path: Path) -> None:
    """Whether it writes a file or not."""
    one = short({"power": named})
    joules = []
    for value in (0.5, 0.9):
        share(tmp_path, value)
        alone, kept = sweeping.run(one), sweeping.run(one, tmp_path / f"{value}.nc")
        same(alone, kept)
        (origin,) = json.loads(kept.attrs["origins"])
        assert set(origin["sources"]) == {"my_policy.py", "my_shares.py"}
        joules.append(float(kept["tx_energy_j"].sum()))
    assert joules[1] == pytest.approx(joules[0] * (0.9 / 0.5) ** 2, rel=1e-5)


@pytest.mark.parametrize("named", ["alone"], indirect=True)
def test_a_module_that_changes_while_it_runs(named: str, tmp_path: Path) -> None:
    """And one that a worker has otherwise than its client: nothing is computed."""
    one = short({"power": named})
    (stack,) = plan_file.load_or_create(one, tmp_path / "s")
    (own,) = plan_file.hash_sources_per_stack([stack])
    job = stack_job.Job(one, stack, tmp_path / "s", sources=own)
    share(tmp_path, 0.9)
    outcome = stack_job.run_job(job, lambda *_: None)
    assert (outcome.state, outcome.kind) == ("failed", "user")
    assert outcome.message.startswith("my_shares.py: changed while the sweep ran, or differs")
    assert not (tmp_path / "s" / "parts").exists()


def aged(folder: Path, number: int, **versions: str) -> None:
    """Make a finished stack one of other versions."""
    path = folder / "parts" / f"{number:05d}.nc"
    part = read_part(path)
    (origin,) = json.loads(part.attrs["origins"])
    origin["versions"] |= versions
    write_part(part.assign_attrs(origins=json.dumps([origin])), path)


@pytest.mark.slow
def test_stacks_of_other_versions_are_named_and_kept(tmp_path: Path) -> None:
    one = short({"sweep": {"power": ["gbma", "ci", "tci"]}})
    whole = sweeping.sweep(one, tmp_path / "s").load()
    (made,) = json.loads(whole.attrs["origins"])
    assert made["points"] == "0-2"
    aged(tmp_path / "s", 1, torch="2.0.1")
    said: list[str] = []
    found = sweeping.sweep(one, tmp_path / "s", tell=said.append)
    assert said == [
        f"{tmp_path / 's'}: 1 of 3 stacks was computed by torch 2.0.1 (here "
        f"{made['versions']['torch']}); kept, as the attribute origins of the result says; "
        "--restart computes everything again"
    ]
    same(found, whole)
    told = [(o["points"], o["versions"]["torch"]) for o in json.loads(found.attrs["origins"])]
    assert told == [("0,2", made["versions"]["torch"]), ("1", "2.0.1")]
    calls = Rounds()
    anew = sweeping.sweep(one, tmp_path / "s", calls, restart=True)
    assert calls == [1, 2, 3, 4, 5, 6]
    assert json.loads(anew.attrs["origins"]) == [made]


@pytest.mark.slow
def test_restart_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: s\nmodel: {hidden: [4]}\ndevices: {count: 3}\ntraining: {rounds: 2, batch_size: 4}\n"
    )
    folder = tmp_path / "out"
    call("sweep", file, "--out", folder, "-q")
    aged(folder, 0, otafl="0.0.9")
    time_of = [float(open_results(folder)["wall_time_s"].sum())]
    capsys.readouterr()
    for more in ([], ["--restart"]):
        call("sweep", file, "--out", folder, "-q", *more)
        told = capsys.readouterr().err
        assert ("computed by otafl 0.0.9 (here " in told) == (not more)
        time_of.append(float(open_results(folder)["wall_time_s"].sum()))
    assert time_of[0] == time_of[1] != time_of[2]


def test_a_result_of_before_is_of_unknown_versions(tmp_path: Path) -> None:
    """A file without the attribute says one version of each program."""
    one = short({"sweep": {"power": ["gbma", "ci"]}})
    sweeping.sweep(one, tmp_path)
    path = tmp_path / "parts" / "00001.nc"
    part = read_part(path)
    del part.attrs["origins"]
    write_part(part.assign_attrs(torch_version="2.0.1", numpy_version=np.__version__), path)
    found = json.loads(open_results(tmp_path).attrs["origins"])
    assert [(o["points"], o["sources"]) for o in found] == [("0", {}), ("1", None)]
    assert found[1]["versions"]["torch"] == "2.0.1"
