"""Race otafl's engine. It reads its data itself, where they are ($OTAFL_DATA_DIR)."""

from __future__ import annotations

from typing import Any

import torch
from measuring import Arrays, Lap, count_cores, main
from works import LocalData

from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.scenario import expand, load_scenario


def scenario_of(work: LocalData, rounds: int) -> dict[str, Any]:
    """Return the scenario of a work; its test samples are the official ones."""
    model: dict[str, Any] = {"name": "softmax_regression", "start": "uniform"}
    if work.hidden:
        model = {"name": "mlp", "hidden": list(work.hidden), "bias_start": "uniform"}
    if work.channels:
        model |= {"name": "cnn", "channels": list(work.channels), "padding": work.padding}
    steps = {"local_epochs": work.epochs} if work.epochs else {"local_steps": work.steps}
    return {
        "name": "race",
        "data": work.data,
        "model": model,
        "algorithm": {"name": "fedavg", "learning_rate": work.rate},
        "transport": "ideal",
        "devices": {"count": work.devices, "participants": work.participants},
        "training": {"rounds": rounds, "batch_size": work.batch, **steps},
        "engine": {"threads": count_cores(), "device": "cpu"},
    }


def race(work: LocalData, rounds: int, arrays: Arrays, lap: Lap) -> float:
    torch.set_num_threads(count_cores())
    points = expand(load_scenario(scenario_of(work, rounds)))
    engine = Engine(assemble(points, range(1)))
    lap()
    for t in range(rounds):
        engine.run_round(t)
        lap()
    recorder = Recorder(engine, 1, 1)
    recorder.take_record(rounds, 0.0)
    return float(recorder.taken[-1]["test_accuracy"].item())


if __name__ == "__main__":
    main(race)
