"""Every method in every topology: what `check` accepts runs, and the rehearsal raises no error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otafl.core import registry
from otafl.preflight import rehearse, report
from otafl.results.dataset import to_dataset
from otafl.running.stack_run import run_stack
from otafl.scenario import ScenarioError

SMALL = {
    "name": "s",
    "data": {"name": "digits", "train_samples": 60},
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 4},
    "training": {"rounds": 1, "batch_size": 5, "eval_samples": 20},
}
FAST = {"training.rounds": 1, "training.local_steps": 1}
"""Instead of the rounds and steps with which a method shows its purpose."""


@pytest.mark.parametrize(
    "topology", ["graph", pytest.param("hierarchical", marks=pytest.mark.slow)]
)
def test_what_check_accepts_runs(topology: str) -> None:
    refused, failed, symbols = {}, {}, {}
    names = registry.list_names("algorithm")
    unfit = [
        one for one in names if "merging" in registry.load_component("algorithm", one).excludes
    ]
    for name in names:
        example: dict[str, Any] = dict(registry.load_settings_class("algorithm", name).example)
        texts = [f"{key}={value}" for key, value in (example | FAST).items()]
        tree = SMALL | {"algorithm": {"name": name}, "topology": {"name": topology}}
        try:
            points = report(tree, texts, rehearse).points
        except ScenarioError as error:
            refused[name] = str(error)
            continue
        try:
            ended = to_dataset(run_stack(points), points, points[0].scenario)
        except Exception as error:
            failed[name] = repr(error)
            continue
        symbols[name] = float(ended["uplink_symbols"].max())
        if topology == "graph":
            assert np.isfinite(ended["consensus_error"].values[..., -1]).all(), name
    assert failed == {}
    assert list(refused) in ([], unfit)
    assert all("topology: " in text for text in refused.values()), refused
    assert unfit
    assert refused or topology != "graph"
    assert symbols["per_fedavg"] == symbols["fedavg"], "the step size alpha is no model"
