"""Laws of random streams and of stacking, of the generator, and of minibatches.

A result is a function of its seed and its trial. It does not depend on what it is computed with.
Numbers are read along positions, devices, trials and rounds. Minibatches of steps are independent
uniform draws without replacement; those of epochs divide a uniformly random order of all samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import numpy as np
import torch
from scipy import stats

from otafl.core import registry
from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.validation.bench import CONFORMANCE, Bench, Rig
from otafl.validation.checks import (
    LEVEL,
    Check,
    check_distribution,
    check_exact,
    check_normal,
    counts,
    state_law,
)
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


ROUNDS = 4000


def _minibatches(
    bench: Bench,
    count: int,
    batch: int,
    devices: int = 1,
    steps: Sequence[int] = (0,),
    epochs: int | None = None,
) -> np.ndarray:
    """Draw minibatches of devices that all have the samples 0 to count - 1.

    The drawn samples are [R, steps, devices, batch]. steps: those of a round that are drawn.
    """
    device = torch.arange(devices, device=bench.torch_device)
    label = torch.arange(count, device=bench.torch_device)
    index = label.expand(1, devices, count)
    held = torch.full((1, devices), count, device=bench.torch_device)
    streams = Streams([11], [4], bench.torch_device)
    x = label[:, None].float()
    data = TrainingData(x, label, index, held, count, streams, batch, max(steps) + 1, epochs=epochs)
    share = torch.ones(devices, device=bench.torch_device)
    cohort = Cohort.create(torch.zeros_like(device), device, share, (devices,), devices)
    works = [data.select_cohort(round, cohort) for round in range(bench.scale_size(ROUNDS))]
    drawn = [torch.stack([work.draw_batch(step).y for step in steps]) for work in works]
    return torch.stack(drawn).cpu().numpy()


SHARES = ((20, 6), (150, 6), (40, 32), (6, 1))
"""Samples of a device and of a minibatch."""


@state_law("minibatches: uniform over samples", "chi-square", "{0[1]} of {0[0]}", SHARES)
def _uniform(bench: Bench, shares: tuple[int, int]) -> Iterator[Check]:
    """Count how often each of n samples is in a minibatch of B, with p = B / n.

    (n - 1) / n of Pearson's statistic with the variance R p (1 - p) is chi-square with n - 1
    degrees of freedom. The factor is due to the correlation -1 / (n - 1) of inclusions. No sample
    is in a minibatch twice.
    """
    count, batch = shares
    drawn = np.sort(_minibatches(bench, count, batch))
    times = np.bincount(drawn.ravel(), minlength=count)
    rounds, share = len(drawn), batch / count
    spread = ((times - rounds * share) ** 2).sum() / (rounds * share * (1.0 - share))
    low, high = stats.chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], count - 1)
    yield Check(count - 1, spread * (count - 1) / count, float(low), float(high))
    yield check_exact(
        0.0, float((np.diff(drawn, axis=-1) == 0).sum()), 0.0, "samples that are twice"
    )


@state_law("minibatches: equally likely orders", "chi-square")
def _orders(bench: Bench) -> Iterator[Check]:
    """Count the 24 orders of 4 samples in the two minibatches of an epoch."""
    drawn = _minibatches(bench, 4, 2, steps=(0, 1), epochs=1).reshape(-1, 4)
    place = {order: i for i, order in enumerate(permutations(range(4)))}
    times = np.bincount([place.get(tuple(row), 24) for row in drawn.tolist()], minlength=25)
    yield counts(np.full(24, len(drawn) / 24), times[:24])
