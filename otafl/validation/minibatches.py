"""Laws of the minibatches of local work.

Those of steps are independent uniform draws without replacement; those of epochs divide a uniformly
random order of all samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import torch
from scipy import stats

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams
from otafl.data.training_data import TrainingData
from otafl.validation.bench import Bench
from otafl.validation.checks import LEVEL, Check, check_exact, counts, state_law

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
