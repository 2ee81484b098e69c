"""Sweeps: the same numbers however points and trials are divided into stacks."""

from __future__ import annotations

import numpy as np
from contract.small import scenario
from support.stopped_sweeps import same

from otafl import sweeping


def test_trials_of_different_length_join() -> None:
    """Trials that run apart and stop at different rounds: the later records of the one that stopped
    first are NaN, as in a stack."""
    keys = {
        "engine.dtype": "float64",
        "transport": "ideal",
        "algorithm.learning_rate": 0.5,
        "training.local_steps": 8,
        "training.rounds": 12,
        "training.stop_at": {"test_accuracy": 0.35},
    }
    together = sweeping.run(scenario(keys))
    apart = sweeping.run(scenario(keys | {"engine.memory_gb": 1e-9}))
    stopped = together["stop_round"].values
    assert len(set(stopped[np.isfinite(stopped)])) > 1
    same(apart, together, tolerance=1e-8)
