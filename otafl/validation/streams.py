"""Laws of random streams, whose numbers are read along positions, devices, trials and rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.validation.bench import CONFORMANCE, Bench
from otafl.validation.checks import Check, check_distribution, check_normal, state_law


@state_law("streams: independence", "mean products")
def _independence(bench: Bench) -> Iterator[Check]:
    """Compute mean products of standard normal numbers."""
    streams = Streams([0, 0, 1], [0, 1, 0], bench.torch_device, torch.float64)
    count = bench.scale_size(400_000)
    one = streams.draw_normal(CONFORMANCE, 0, (count,))
    pairs = {
        "trials": (one[0], one[1]),
        "seeds": (one[0], one[2]),
        "rounds": (one[0], streams.draw_normal(CONFORMANCE, 1, (count,))[0]),
        "purposes": (one[0], streams.draw_normal(CONFORMANCE / "other", 0, (count,))[0]),
        "places": (one[0, :-1], one[0, 1:]),
    }
    for case, (left, right) in pairs.items():
        yield check_normal(0.0, float((left * right).mean()), 1.0 / math.sqrt(len(left)), case)


def _streams(bench: Bench, trials: int = 1) -> Streams:
    return Streams([1] * trials, list(range(trials)), bench.torch_device)


def _over_positions(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench), f"draw_{law}")
    return np.asarray(draw(CONFORMANCE, 0, (count,))[0].cpu())


def _over_devices(bench: Bench, law: str, count: int) -> np.ndarray:
    device = torch.arange(count, device=bench.torch_device)
    draw = getattr(_streams(bench), f"draw_device_{law}")
    return np.asarray(draw(CONFORMANCE, 0, torch.zeros_like(device), device, (1,))[:, 0].cpu())


def _over_trials(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench, count), f"draw_{law}")
    return np.asarray(draw(CONFORMANCE, 0, (1,))[:, 0].cpu())


def _over_rounds(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench), f"draw_{law}")
    return np.array([float(draw(CONFORMANCE, round, (1,))[0, 0]) for round in range(count)])


WAYS: dict[str, tuple[Callable[[Bench, str, int], np.ndarray], int]] = {
    "positions": (_over_positions, 400_000),
    "devices": (_over_devices, 400_000),
    "trials": (_over_trials, 8_000),
    "rounds": (_over_rounds, 8_000),
}
"""Dimension along which numbers are read -> reader and quantity; a study reads along all."""


@state_law("streams: distributions", "Kolmogorov and Smirnov", "{}", WAYS)
def _distributions(bench: Bench, way: str) -> Iterator[Check]:
    draw, count = WAYS[way]
    for law, expected in (("normal", stats.norm), ("uniform", stats.uniform)):
        yield check_distribution(draw(bench, law, bench.scale_size(count)), expected.cdf, law)
