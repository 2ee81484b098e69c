"""One pass over a scenario: what the report holds, and how often things are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from otafl import preflight
from otafl.cli.app import load
from otafl.core.problems import Problem
from otafl.data.loading import read_shape
from otafl.preflight import rehearsal
from otafl.preflight.rehearsal import find_problems, find_problems_on_data
from otafl.running import memory
from otafl.running.memory import MAX_FLOPS_PER_S, estimate_trial
from otafl.scenario import Point, Scenario, ScenarioError

pytestmark = pytest.mark.exact

SMALL: dict[str, Any] = {
    "name": "s",
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 4},
    "training": {"rounds": 2, "local_steps": 3, "batch_size": 5},
    "trials": 3,
}


def fine(scenario: Scenario, fits: bool) -> list[Problem]:
    return []


def test_everything_is_in_one_report() -> None:
    sweep = {"power": ["ci", "gbma"], "training.rounds": [2, 4]}
    found = preflight.report({**SMALL, "transport": "digital", "sweep": sweep}, look=find_problems)
    assert found.error is None
    assert [point.index for point in found.points] == [0, 1, 2, 3]
    (note,) = found.warnings
    assert note.startswith("power: 'ci' without effect")
    one = found.points[0].scenario
    assert found.trial_bytes == estimate_trial(one, read_shape(one.data)).bytes
    # 4 devices, 3 minibatches of 5 samples; forward and backward passes
    rounds = 3 * 2 * (2 + 4)
    least_s = rounds * 4 * 3 * 5 * 4 * (64 * 4 + 4 * 10) / MAX_FLOPS_PER_S
    assert found.seconds is not None
    assert least_s < found.seconds * torch.get_num_threads() < 3 * least_s
    assert found.require_scenario() is found.scenario
    again = preflight.report(found.require_scenario())
    assert again.points == found.points
    assert (again.warnings, again.trial_bytes, again.seconds) == (
        found.warnings,
        found.trial_bytes,
        found.seconds,
    )


def test_errors_are_those_of_reading_and_of_trying() -> None:
    found = preflight.report({**SMALL, "seed": -1, "power": "gbam"}, look=find_problems)
    assert found.error is not None
    assert len(found.error.lines) == 2
    with pytest.raises(ScenarioError) as error:
        found.require_scenario()
    assert error.value is found.error

    def refuse(scenario: Scenario, fits: bool) -> list[Problem]:
        return [Problem("trials: refused", ("trials",))]

    found = preflight.report(SMALL, ["trials=4"], refuse)
    assert found.error is not None
    assert found.error.lines == ("--set trials=4: trials: refused",)


def test_a_point_with_errors_is_not_tried() -> None:
    tried = []
    sweep = {"power": ["gbma", "ci"], "transport": ["over_the_air"], "algorithm": ["local_only"]}
    found = preflight.report(
        {**SMALL, "server": "momentum", "sweep": sweep},
        look=lambda one, fits: tried.append(one) or [],
    )
    assert found.error is not None
    assert not tried


def test_what_there_is_no_room_for_is_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules are looked for all the same."""
    monkeypatch.setattr(memory, "_get_total_memory", lambda device: 10**6)
    made = []
    real = rehearsal.assemble

    def assemble(points: list[Point], *rest: Any) -> Any:
        made.append(points[0].scenario.model.hidden)
        return real(points, *rest)

    monkeypatch.setattr(rehearsal, "assemble", assemble)
    tree = {**SMALL, "engine": {"memory_gb": 5e-4}, "sweep": {"model.hidden": [[4], [400]]}}
    found = preflight.report(tree)
    assert set(made) == {(4,)}
    assert find_problems_on_data(found.points[1].scenario, False) == []
    assert set(made) == {(4,)}
    wrong = preflight.report({**tree, "sweep": {}, "model": {"hidden": [400]}, "csi": "json:no"})
    assert wrong.error is not None
    assert wrong.error.lines[0].startswith("csi.name: 'json:no'")
    (said,) = found.warnings
    assert said.startswith("model: one trial takes ")
    assert found.trial_bytes is not None
    assert found.trial_bytes > 10**6


def test_size_and_time_are_unknown_where_no_point_is_tried() -> None:
    untried = preflight.report(SMALL, look=None)
    assert (untried.trial_bytes, untried.seconds) == (None, None)


def test_what_is_about_to_run_prints_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text("name: s\npower: ci\ntransport: digital\n")
    load(Path("s.yaml"), None)
    assert "otafl: warning: power: 'ci' without effect" in capsys.readouterr().err


def test_points_of_one_structure_are_tried_once() -> None:
    asked = []
    preflight.report(
        {**SMALL, "sweep": {"channel.snr_db": [0, 10, 20], "power": ["gbma", "ci"]}},
        look=lambda one, fits: asked.append(one) or [],
    )
    assert [one.power.name for one in asked] == ["gbma", "ci"]
