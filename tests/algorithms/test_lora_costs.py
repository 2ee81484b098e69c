"""Holds the operations of adapters to what is counted in real rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from algorithms.test_operations import padded_adapters, said
from support.local_rounds import run_local_round

from otafl.core.compiled_module import CompiledModule

pytestmark = pytest.mark.exact

WITHIN = {1: 0.05, 20: 0.01}
"""Batch size -> relative difference. Sums and differences of factors in a step are not counted."""

SETTINGS: list[dict[str, Any]] = [
    {"mode": "both", "rank": 16},
    {"mode": "freeze_a", "rank": 16},
    {"mode": "square", "basis": "weight", "rank": 16},
    {"mode": "tangent", "rank": 8},
    {"mode": "alternate", "rank": 16},
    {"mode": "share_a", "rank": 16},
]


@pytest.fixture(autouse=True)
def _no_compiled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of compiled loops are not counted."""
    monkeypatch.setattr(CompiledModule, "LOADING_S", math.inf)


@pytest.mark.parametrize("batch", WITHIN)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: one["mode"])
def test_operations_are_those_of_a_round(settings: Mapping[str, Any], batch: int) -> None:
    """Of small minibatches most are those of a step, of larger ones those of samples.

    Mode alternate trains A and B in turn and says the mean of two rounds.
    """
    keys = {
        "model.hidden": [40, 30],
        "training.local_steps": 6,
        "training.batch_size": batch,
        "algorithm": {"name": "lora", **settings},
    }
    rounds = 2 if settings["mode"] == "alternate" else 1
    one = run_local_round("lora", keys, rounds)
    counted = one.counted.total - padded_adapters(one)
    assert rounds * said(one) == pytest.approx(counted, rel=WITHIN[batch])
