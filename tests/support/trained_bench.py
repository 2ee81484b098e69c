"""Small results with trained models beside them, for the tests of saving and exporting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otafl.results import models as trained
from otafl.results.dataset import to_dataset
from otafl.results.files import write_part
from otafl.running.stack_run import run_stack
from otafl.scenario import expand, load_scenario

BASE: dict[str, Any] = {
    "name": "kept",
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [16]},
    "devices": {"count": 3},
    "training": {"rounds": 4, "eval_every": 2, "local_steps": 10},
    "transport": "ideal",
    "trials": 2,
    "output": {"save_models": True},
}


def make_trained_result(folder: Path, **changes: Any) -> Path:
    """The result file, with accuracies alone, of a scenario whose points are one stack."""
    scenario = load_scenario(BASE | changes)
    points = expand(scenario)
    record = run_stack(points)
    path = folder / "kept.nc"
    whole = to_dataset(record, points, scenario)
    some = [name for name in whole.data_vars if str(name).endswith(("accuracy", "_round"))]
    write_part(whole[some], path)
    assert record.models is not None
    trained.write(record.models, trained.get_models_folder(path) / f"{0:016x}.pt", scenario)
    return path
