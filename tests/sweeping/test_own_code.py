"""What was computed by another state of the user's own modules, or of the programs, is never mixed
with the rest without a word."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import scenario, trace
from support.stopped_sweeps import Kill, same

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.scenario import Scenario, expand
from otafl.sweeping import stack_job
from otafl.sweeping.planning import hash_sources, name_points, plan
from otafl.user_code import sources

pytestmark = pytest.mark.exact

POLICY = """\
import torch
from my_pack.shares import SHARE

def f(link):
    amplitude = SHARE * (link.budget / 1e3)[:, None].sqrt()
    p = amplitude * torch.ones_like(link.h) * link.transmit_mask[:, None]
    return p, torch.ones_like(link.h[..., 0].real)
"""


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A policy of the user's in the working folder, whose numbers come from a package beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits are within a second
    (tmp_path / "my_pack").mkdir()
    (tmp_path / "my_pack" / "__init__.py").write_text("")
    (tmp_path / "my_policy.py").write_text(POLICY)
    share(tmp_path, 0.5)
    yield "my_policy:f"
    forget_modules()


def share(folder: Path, value: float) -> None:
    """Edit the user's modules, and forget them, as a new Python program has not imported them."""
    (folder / "my_pack" / "shares.py").write_text(f"SHARE = {value}\n")
    forget_modules()


def forget_modules() -> None:
    for name in [one for one in sys.modules if one.startswith("my_")]:
        del sys.modules[name]
    sources._imported.clear()


def short(keys: dict[str, Any]) -> Scenario:
    return scenario({"training.rounds": 2, "trials": 1} | keys)


def check_refused(refused: pytest.ExceptionInfo[UserError], *words: str) -> None:
    """Check that a message says what has changed, and the three ways out."""
    ways_out = ("undo the change", "--out", "delete this")
    assert all(word in str(refused.value) for word in (*words, "has changed since", *ways_out))


def test_an_edited_module_is_refused(named: str, tmp_path: Path) -> None:
    """Nothing that is finished is lost: undoing the change resumes, another folder begins."""
    one, folder = short({"sweep": {"power": ["gbma", named]}}), tmp_path / "s"
    before, said, calls = sweeping.sweep(one, folder).load(), list[str](), Kill(after=-1)
    kept = {path: path.read_bytes() for path in folder.rglob("*.nc")}
    share(tmp_path, 0.9)
    with pytest.raises(UserError) as refused:
        sweeping.sweep(one, folder, calls)
    check_refused(refused, "my_pack/shares.py")
    assert {path: path.read_bytes() for path in folder.rglob("*.nc")} == kept
    share(tmp_path, 0.5)
    same(sweeping.sweep(one, folder, calls, tell=said.append), before)
    assert (calls.calls, said) == (0, [])
    share(tmp_path, 0.9)
    after = sweeping.sweep(one, tmp_path / "again", tell=said.append)
    first, second = float(before["tx_energy_j"][1].sum()), float(after["tx_energy_j"][1].sum())
    assert second == pytest.approx(first * (0.9 / 0.5) ** 2, rel=1e-5)


@pytest.mark.slow
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
            assert "my_pack/shares.py" in said[0]
            continue
        with pytest.raises(UserError) as refused:
            sweeping.run(one, out)
        check_refused(refused, "my_pack/shares.py")
        assert out.read_bytes() == kept


def test_a_module_that_changes_while_it_runs(named: str, tmp_path: Path) -> None:
    """And one that a worker has otherwise than its client: nothing is computed."""
    one = short({"power": named})
    points = expand(one)
    (files,) = hash_sources(points)
    (stack,) = plan(points, name_points(points, [files]), {})
    job = stack_job.Job(one, stack, tmp_path / "s", 0, files, tmp_path / "track")
    share(tmp_path, 0.9)
    outcome = stack_job.run_job(job, lambda *_: None)
    assert (outcome.state, outcome.kind) == ("failed", "user")
    assert outcome.message.startswith("my_pack/shares.py: changed while the sweep ran, or differs")
    assert not (tmp_path / "s" / "parts").exists()


def test_a_file_that_the_scenario_names_counts_too(tmp_path: Path) -> None:
    path = Path(shutil.copy(trace(), tmp_path / "trace.npz"))
    one = short({"channel": {"name": "trace", "path": str(path)}, "training.rounds": 1})
    sweeping.sweep(one, tmp_path / "s")
    with np.load(path) as stored:
        changed = {name: 2.0 * values for name, values in stored.items()}
    np.savez(path, **changed)
    with pytest.raises(UserError) as refused:
        sweeping.sweep(one, tmp_path / "s")
    check_refused(refused, "trace.npz")
