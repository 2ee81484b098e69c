"""Metrics of tests: their units, their bounds, and whether more or less of them is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """Describe a metric of a test: its units, what it is, and which way it is better.

    lowest, highest: its bounds. is_guess: a trial that diverged counts with its value of a guess.
    """

    units: str
    noun: str
    better: Better
    lowest: float = 0.0
    highest: float = math.inf
    is_guess: bool = True


METRICS = {
    "accuracy": Metric("1", "accuracy", "higher", highest=1.0),
    "loss": Metric("nat", "loss", "lower", is_guess=False),
    "mse": Metric("1", "mean squared error", "lower"),
    "r2": Metric("1", "share of the explained variance", "higher", -math.inf, 1.0),
    "perplexity": Metric("1", "perplexity", "lower", lowest=1.0),
}
"""Metric, the last word of a variable's name -> what it is. A loss has those that it declares."""

MAIN = ("accuracy", "mse", "perplexity")
"""Metrics by which models are judged if nothing is said: a result has one of them."""

MODELS = ("test", "personal_own_test", "personal_test", "local_test", "validation")
"""Models and samples whose metrics can be targets, by the first words of their variables."""


def list_variables(*tested: str, metrics: tuple[str, ...] = MAIN) -> tuple[str, ...]:
    """List the variables of metrics of models that are tested so, metric by metric."""
    return tuple(f"{name}_{metric}" for metric in metrics for name in tested)
