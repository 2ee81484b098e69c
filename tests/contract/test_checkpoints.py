"""Whatever a component keeps from round to round is in a checkpoint: a run that is taken up from
one is the run that nobody stopped, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import over_fading, points, scenario, small

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.results.dataset import Record
from otafl.running.stack_run import Checkpoint, CheckpointState

BEFORE, ROUNDS, TRIALS = 3, 6, [0, 1]

LATE: dict[str, Any] = {
    "devices.participants": 3,
    "devices.compute": {"name": "mcu", "jitter": "exponential", "jitter_scale": 0.5},
    "devices.deadline_s": 0.002,
    "devices.late": "next",
    "trials": 2,
}
"""Updates are on their way at most checkpoints."""

QUICK = ("selection", "codec", "power", "server", "rule", "protocol")
WHOLE = ("algorithm", "downlink", "availability", "cpu_frequency")
"""Tables whose components have a state of their own; of the others the last one is tested."""
TABLES = (*QUICK, *WHOLE, "channel", "csi", "receiver", "transport", "capacity_levels", "compute")

CASES = [
    pytest.param(table, name, marks=() if table in QUICK and turn % 2 == 0 else pytest.mark.slow)
    for table in TABLES
    for turn, name in enumerate(registry.list_names(table)[0 if table in QUICK + WHOLE else -1 :])
]


def changes(table: str, name: str) -> dict[str, Any]:
    """A scenario with the component and late updates, where the two go together."""
    example = registry.load_settings_class(table, name).example
    keys = {**example, registry.TABLES[table].section: small(table, name)}
    keys = {key: value for key, value in keys.items() if key not in _inside(table, keys)}
    if table == "algorithm":
        keys[table] = name
        keys["transport"] = over_fading(name)
    if table in ("protocol", "capacity_levels", "cpu_frequency", "compute") or example:
        return {"trials": 2, **keys}
    late = {**LATE, **keys}
    try:
        scenario(late)
    except UserError:  # it does not go with updates of earlier slots
        return late | {"devices.late": "drop"}
    return late


def _inside(table: str, keys: dict[str, Any]) -> list[str]:
    return [key for key in keys if key.startswith(f"{registry.TABLES[table].section}.")]


def ran(recorder: Recorder, first: int, last: int) -> Record:
    for t in range(first, last):
        if not recorder.engine.running.any():  # as where channel knowledge misleads from the start
            break
        recorder.engine.run_round(t)
        recorder.take_record(t + 1, 0.0)
    return recorder.record()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the files that examples name."""
    (tmp_path / "devices.csv").write_text("flops_per_s\n1e8\n2e8\n")
    (tmp_path / "availability.csv").write_text("device,start_s,end_s\n0,0,0.01\n1,0.002,4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("fewest_states")
@pytest.mark.parametrize(("table", "name"), CASES)
def test_goes_on_as_if_nobody_had_stopped_it(table: str, name: str, files: Path) -> None:
    one = points(changes(table, name))
    engine = Engine(assemble(one, TRIALS))
    engine.parts.clock.journal = []
    recorder = Recorder(engine, 1, len(TRIALS))
    recorder.take_record(0, 0.0)
    ran(recorder, 0, BEFORE)
    checkpoint = Checkpoint(files / "kept.pt", 1)
    checkpoint.save(CheckpointState(recorder, BEFORE, 0.0), one, TRIALS)
    whole = ran(recorder, BEFORE, ROUNDS)
    kept = checkpoint.load(one, TRIALS)
    assert kept is not None, checkpoint.refusal
    assert kept.rounds == BEFORE
    again = ran(kept.recorder, BEFORE, ROUNDS)
    assert again.rounds == whole.rounds
    assert again.variables.keys() == whole.variables.keys()
    for variable, values in whole.variables.items():
        np.testing.assert_array_equal(again.variables[variable], values, err_msg=variable)
