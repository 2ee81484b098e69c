"""One pass over a scenario: what the report holds, and how often things are looked at."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from otafl import preflight
from otafl.cli.app import load
from otafl.core.problems import Problem
from otafl.preflight import Rehearsal, rehearse, report
from otafl.running import memory
from otafl.running.memory import MAX_FLOPS_PER_S, estimate_trial
from otafl.scenario import Scenario, ScenarioError

pytestmark = pytest.mark.exact

SMALL: dict[str, Any] = {
    "name": "s",
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 4},
    "training": {"rounds": 2, "local_steps": 3, "batch_size": 5},
    "trials": 3,
}


def test_everything_is_in_one_report() -> None:
    sweep = {"power": ["ci", "gbma"], "training.rounds": [2, 4]}
    found = report({**SMALL, "transport": "digital", "sweep": sweep}, try_fn=rehearse)
    assert [point.index for point in found.points] == [0, 1, 2, 3]
    (note,) = found.warnings
    assert note.startswith("power: 'ci' without effect")
    every = found.rehearsals
    assert {one.trial_bytes for one in every} == {estimate_trial(found.points[0].scenario)}
    # 4 devices, 3 minibatches of 5 samples; forward and backward passes
    rounds = 3 * 2 * (2 + 4)
    least_s = rounds * 4 * 3 * 5 * 4 * (64 * 4 + 4 * 10) / MAX_FLOPS_PER_S
    seconds = sum(one.seconds for one in every)
    assert least_s < seconds * torch.get_num_threads() < 3 * least_s
    assert report(found.scenario, try_fn=rehearse) == found


def test_errors_are_those_of_reading_and_of_trying() -> None:
    with pytest.raises(ScenarioError) as error:
        report({**SMALL, "seed": -1, "power": "gbam"}, try_fn=rehearse)
    assert len(error.value.lines) == 2

    def refuse(scenario: Scenario) -> Rehearsal:
        return Rehearsal([Problem("trials: refused", ("trials",))])

    with pytest.raises(ScenarioError) as error:
        report(SMALL, ["trials=4"], refuse)
    assert error.value.lines == ("--set trials=4: trials: refused",)


def test_a_point_with_errors_is_not_tried() -> None:
    tried: list[Scenario] = []
    sweep = {"power": ["gbma", "ci"], "transport": ["over_the_air"], "algorithm": ["local_only"]}
    with pytest.raises(ScenarioError):
        report({**SMALL, "server": "momentum", "sweep": sweep}, try_fn=note(tried))
    assert not tried


def note(tried: list[Scenario]) -> Callable[[Scenario], Rehearsal]:
    """Return a function that notes what it is asked to try."""

    def try_point(one: Scenario) -> Rehearsal:
        tried.append(one)
        return Rehearsal()

    return try_point


def test_what_there_is_no_room_for_is_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules are looked for all the same."""
    monkeypatch.setattr(memory, "_get_total_memory", lambda device: 10**6)
    monkeypatch.delattr(preflight, "assemble")
    tree = {**SMALL, "model": {"hidden": [400]}, "engine": {"memory_gb": 5e-4}}
    (found,) = report(tree, try_fn=rehearse).rehearsals
    assert found.untried.startswith("model: one trial takes ")
    with pytest.raises(ScenarioError, match=r"^csi\.name: 'json:no'"):
        report({**tree, "csi": "json:no"}, try_fn=rehearse)


def test_what_is_about_to_run_prints_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text("name: s\npower: ci\ntransport: digital\n")
    load(Path("s.yaml"), None)
    assert "otafl: warning: power: 'ci' without effect" in capsys.readouterr().err


def test_points_of_one_structure_are_tried_once() -> None:
    tried: list[Scenario] = []
    sweep = {"channel.snr_db": [0, 10, 20], "power": ["gbma", "ci"]}
    report({**SMALL, "sweep": sweep}, try_fn=note(tried))
    assert [one.power.name for one in tried] == ["gbma", "ci"]


def test_own_data_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all points of a report, however many of its steps read them."""
    (tmp_path / "my_own_data.py").write_text(
        "import numpy as np\n"
        "from otafl.data import DataSet\n"
        "MADE = []\n"
        "def make():\n"
        "    MADE.append(1)\n"
        "    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2\n"
        "    return DataSet(x, y, x, y, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    report(
        {**SMALL, "data": "my_own_data:make", "sweep": {"codec": ["identity", "topk"]}},
        try_fn=rehearse,
    )
    assert len(importlib.import_module("my_own_data").MADE) == 1
