"""Runs with a tracker: what it is told, when it is interrupted, and when it fails itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario
from support.stopped_sweeps import same
from support.trackers import TOLD

from otafl import sweeping
from otafl.core.errors import UserError
from otafl.results.variables import ROUNDS, VARIABLES
from otafl.running.stack_run import Checkpoint, TrackingOutput, run_stack, select_values
from otafl.scenario import compute_scenario_hash, expand, hash_custom_sources, make_stack_key

pytestmark = pytest.mark.exact

NOTED = "support.trackers:noted"


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    TOLD.clear()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def points(folder: Path, **keys: Any) -> list[Any]:
    changes = {"output.folder": str(folder), "track": "jsonl", "training.rounds": 6, **keys}
    return expand(scenario({"trials": 2, "training.eval_every": 2, **changes}))


def test_lines_hold_what_the_result_holds(tmp_path: Path) -> None:
    """All that is one number a trial and round, and energies summed over devices and causes."""
    changes = {"sweep": {"channel.snr_db": [0, 20]}, "output.folder": str(tmp_path)}
    swept = scenario({**changes, "track": "jsonl", "algorithm": "ditto"})
    result = sweeping.run(swept, tmp_path / "x.nc")
    files = sorted(path for path in tmp_path.glob("x.track/**/*") if path.is_file())
    assert len(files) == 2 * 3
    for path in files:
        said = lines(path)
        assert [line["round"] for line in said] == [0, 1, 2, 3, 4]
        for line in said:
            snr_db, trial = line.pop("snr_db"), line.pop("trial")
            assert path == tmp_path / f"x.track/{snr_db // 20}_snr_db={snr_db}/trial_{trial}.jsonl"
            at = result.sel(snr_db=snr_db, trial=trial, round=line.pop("round"))
            for name, value in line.items():
                assert value == pytest.approx(float(at[name].sum()), rel=1e-6), name
            every = [name for name in at if VARIABLES[str(name)].dims == ROUNDS]
            assert {name for name in every if np.isfinite(at[name])} <= set(line)
            assert {"device_energy_j", "compute_energy_j", "tx_energy_j"} <= set(line)


def test_a_level_has_its_number_and_devices_are_left_out() -> None:
    taken = {
        "level_test_accuracy": np.array([[0.1, 0.2], [0.3, np.nan]]),
        "device_energy_j": np.arange(12.0).reshape(2, 3, 2),
        "charge_j": np.ones((2, 3)),
        "train_loss": np.array([np.nan, np.inf]),
    }
    assert select_values(taken, 0) == {
        "level_test_accuracy/0": 0.1,
        "level_test_accuracy/1": 0.2,
        "device_energy_j": 15.0,
    }
    assert select_values(taken, 1) == {"level_test_accuracy/0": 0.3, "device_energy_j": 51.0}


def test_tracking_changes_neither_numbers_nor_identity(tmp_path: Path) -> None:
    bare = scenario({"output.folder": str(tmp_path)})
    for track in ("jsonl", "tensorboard", {"name": NOTED, "fails_at": 2}):
        tracked = scenario({"output.folder": str(tmp_path), "track": track})
        assert compute_scenario_hash(tracked) == compute_scenario_hash(bare)
        assert make_stack_key(tracked) == make_stack_key(bare)
        assert hash_custom_sources(tracked) == {}
    with pytest.warns(UserWarning, match="lost trial_0"):
        told = sweeping.run(tracked)
    same(sweeping.run(bare), told)


def test_a_resumed_run_goes_on_in_its_file(tmp_path: Path) -> None:
    """Killed in round 5 of 6, after a checkpoint at 3 and an evaluation at 4, in the middle of a
    line."""
    one = points(tmp_path)

    def stopped(done: int, total: int) -> None:
        if done == 5:
            raise RuntimeError

    def run(folder: str, progress: Any = None) -> list[list[dict[str, Any]]]:
        checkpoint = Checkpoint(tmp_path / f"{folder}.pt", 3)
        run_stack(one, progress, None, checkpoint, TrackingOutput(tmp_path / folder))
        said = [lines(tmp_path / folder / f"trial_{trial}.jsonl") for trial in (0, 1)]
        for line in [line for file in said for line in file]:
            assert line.pop("wall_time_s") >= 0
        return said

    whole = run("whole")
    assert [line["round"] for line in whole[0]] == [0, 2, 4, 6]
    with pytest.raises(RuntimeError):
        run("cut", stopped)
    with (tmp_path / "cut/trial_1.jsonl").open("a") as file:
        file.write('{"trial": 1, "rou')
    assert run("cut") == whole


def test_one_that_fails_is_left_out_and_said(tmp_path: Path) -> None:
    tracked = scenario({"track": {"name": NOTED, "fails_at": 2, "at_end": True}, "trials": 2})
    said: list[str] = []
    result = sweeping.sweep(tracked, tmp_path / "out", tell=said.append)
    gone = "ConnectionError: the service is gone"
    closed = "ConnectionError: it cannot be closed"
    assert sorted(said) == [
        f"track: {NOTED} lost trial_0 ({closed})",
        f"track: {NOTED} lost trial_0 ({gone})",
        f"track: {NOTED} lost trial_1 ({closed})",
    ]
    assert [told[1] for told in TOLD if told[0] == "trial_0"] == ["begin", 0, 1, "end"]
    assert [told[1] for told in TOLD if told[0] == "trial_1"] == ["begin", 0, 1, 2, 3, 4, "end"]
    assert isinstance(result, xr.Dataset)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"track: support.trackers:broken cannot begin with trial_0 \(ModuleNotFound"),
        (
            "undecorated",
            r"track.name: 'support.trackers:undecorated' returned generator; expected a function",
        ),
        ("nothing", r"track.name: 'support.trackers:nothing': 'nothing' does not exist"),
    ],
)
def test_one_that_cannot_begin_is_said_before_the_first_round(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sweeping.run(scenario({"track": f"support.trackers:{name}"}))
