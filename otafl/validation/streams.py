"""Laws of random numbers and of stacking.

A result is a function of its seed and its trial. It does not depend on what it is computed with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.validation.bench import CONFORMANCE, Bench, Rig
from otafl.validation.checks import Check, check_exact, check_normal, state_law
from otafl.validation.policies import build_settings

POWERS = registry.list_names("power")

POINT = {
    "channel": {"name": "rayleigh", "snr_db": 10.0},
    "csi": {"name": "error", "variance": 0.1},
    "impairments": {"residual_phase_rad": 0.3},
}


def _estimates(rig: Rig, rounds: range) -> torch.Tensor:
    """Return the estimates [R, S, P] of several rounds."""
    sent = [rig.send(rig.draw_symbols(20, round), round)[0] for round in rounds]
    return torch.stack(sent)


@state_law("streams: the same seed gives the same numbers", "bit for bit", "{}", POWERS)
def _same_seed(bench: Bench, power: str) -> Iterator[Check]:
    point = POINT | {"power": build_settings(power)}
    first, second = (_estimates(bench.build_rig(5, 3, point), range(2)) for _ in range(2))
    yield check_exact(0.0, float((first - second).abs().max()), 0.0)


@state_law("streams: rounds do not depend on those before", "counter-based streams")
def _compare_rounds(bench: Bench) -> Iterator[Check]:
    """Compare round 70 after the 70 rounds before it with round 70 alone."""
    one = _estimates(bench.build_rig(5, 2, POINT), range(71))[-1]
    other = _estimates(bench.build_rig(5, 2, POINT), range(70, 71))[-1]
    yield check_exact(0.0, float((one - other).abs().max()), 0.0)


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
