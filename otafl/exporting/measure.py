"""Measurements of an exported model: scores, accuracy, and latency of single samples on one thread.

The scores are compared with those of the PyTorch module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.benchmark import Timer

from otafl.models.modules import Params

Run = Callable[[np.ndarray], np.ndarray]
"""Samples [batch, *input_shape] -> scores [batch, classes], both float32."""

TOLERANCE = 1e-4
"""Largest difference of two scores, relative to the largest score: rounding of float32."""
BATCH = 500
ROUNDS, CALLS = 20, 10


@dataclass(frozen=True)
class ModelSource:
    """A trained model as formats write it.

    module: the model in float32 and eval mode. params: what it is made of, for formats of weights.
    parts: those of each of several models that are combined. build_fn: makes a module of params.
    """

    module: nn.Module
    input_shape: tuple[int, ...]
    params: Params = field(default_factory=dict)
    parts: Sequence[Params] = ()
    build_fn: Callable[[Params], nn.Module] | None = None


class Scored(NamedTuple):
    """Scores [n, classes] and their accuracy, NaN without classes."""

    scores: np.ndarray
    accuracy: float


class Latency(NamedTuple):
    """Latency of one sample in seconds: median, shortest and longest mean of `CALLS` calls."""

    median_s: float
    shortest_s: float
    longest_s: float

    def __str__(self) -> str:
        """Format the latency in microseconds."""
        median, low, high = (f"{1e6 * one:.3g}" for one in self)
        return f"{median} ({low} to {high})"


def make_run_fn(module: nn.Module) -> Run:
    """Return what runs the module itself, as other runtimes are called."""

    @torch.inference_mode()
    def run(x: np.ndarray) -> np.ndarray:
        scores: np.ndarray = module(torch.from_numpy(x)).numpy()
        return scores

    return run


def score_samples(run: Run, x: np.ndarray, y: np.ndarray) -> Scored:
    """Score samples x [n, *input_shape] with labels y [n] in batches."""
    scores = np.concatenate([run(x[i : i + BATCH]) for i in range(0, len(x), BATCH)])
    classes = y.ndim == 1
    return Scored(scores, float((scores.argmax(1) == y).mean()) if classes else math.nan)


def find_difference(before: Scored, after: Scored) -> str | None:
    """Describe the difference of scores after a conversion; None if it is only rounding."""
    largest = float(np.abs(before.scores).max())
    apart = float(np.abs(before.scores - after.scores).max())
    if apart <= TOLERANCE * largest:
        return None
    return f"scores differ by {apart:.3g}, of at most {largest:.3g}"


def measure_latencies(
    runs: Mapping[str, Run], x: np.ndarray, rounds: int | None = None
) -> dict[str, Latency]:
    """Time one sample x [1, *input_shape] on one thread, in rounds (ROUNDS) of `CALLS` calls.

    The models take turns, so that other load of the machine affects all of them.
    """
    timers = {name: Timer("run(x)", globals={"run": run, "x": x}) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS if rounds is None else rounds):
        for name, timer in timers.items():
            times[name].append(timer.timeit(CALLS).mean)
    return {
        name: Latency(float(np.median(each)), min(each), max(each)) for name, each in times.items()
    }
