"""Laws of random streams."""

from __future__ import annotations

import math
from collections.abc import Iterator

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


@state_law("streams: distributions", "Kolmogorov and Smirnov")
def _distributions(bench: Bench) -> Iterator[Check]:
    """Compare normal and uniform numbers along positions and along devices with their laws."""
    device = torch.arange(bench.scale_size(400_000), device=bench.torch_device)
    streams, trial = Streams([1], [0], bench.torch_device), torch.zeros_like(device)
    for law, expected in (("normal", stats.norm), ("uniform", stats.uniform)):
        shared, own = (getattr(streams, name) for name in (f"draw_{law}", f"draw_device_{law}"))
        positions = shared(CONFORMANCE, 0, (len(device),))[0]
        devices = own(CONFORMANCE, 0, trial, device, (1,))[:, 0]
        yield check_distribution(positions.cpu().numpy(), expected.cdf, f"{law}, positions")
        yield check_distribution(devices.cpu().numpy(), expected.cdf, f"{law}, devices")
