"""Laws of data: random partitions, augmentation, and the noise of generated labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from otafl.data.partitions import Partition, PartitionTask
from otafl.data.partitions.by_class import Dirichlet, DirichletMix
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_mean,
    counts,
    largest,
    state_law,
)

CLASSES = 10
CONCENTRATIONS = ("alpha={:g}", (0.01, 0.1, 1.0, 100.0))
PROPORTIONS = ("alpha={:g}", (0.2, 1.0, 5.0))


def _assign(partition: Partition, labels: np.ndarray, devices: int, seed: int) -> list[np.ndarray]:
    """Return the samples of each device."""
    task = PartitionTask(labels, devices, np.random.default_rng(seed), None)
    return list(partition.assign_samples(task))


@state_law("partition dirichlet: share of a class", "Beta(alpha, (K - 1) alpha)", *PROPORTIONS)
def _dirichlet(bench: Bench, alpha: float) -> Iterator[Check]:
    """Compare the share of a class that one of four devices gets.

    It has rint(share * size) samples, so bins that end at half samples are exact.
    """
    devices, classes, size = 4, 200, 200
    labels, found = np.repeat(np.arange(classes), size), []
    for seed in range(bench.scale_size(20)):
        first = _assign(Dirichlet(alpha=alpha), labels, devices, seed)[0]
        found.append(np.bincount(labels[first], minlength=classes) / size)
    share, law = np.concatenate(found), stats.beta(alpha, (devices - 1) * alpha)
    mean, variance = law.stats("mv")
    yield check_mean(float(mean), share, "mean", bias=1e-4)
    yield check_mean(float(variance), (share - mean) ** 2, "variance", bias=1e-5)
    inner = np.unique(np.floor(law.ppf(np.linspace(0.05, 0.95, 19)) * size) + 0.5) / size
    edges = np.concatenate([[-0.5], inner, [1.5]])
    yield counts(np.diff(law.cdf(edges)) * len(share), np.histogram(share, edges)[0], "all")


@state_law(
    "partition dirichlet_mix: concentration",
    "E sum p^2 = (alpha + 1) / (C alpha + 1)",
    *CONCENTRATIONS,
)
def _mix(bench: Bench, alpha: float) -> Iterator[Check]:
    """Compare the chance that two of a device's samples have one class, where no class runs out.

    The mean share of each class is 1 / C; the largest deviation of a class is checked.
    """
    devices, each = bench.scale_size(200), 300
    labels = np.arange(200_000) % CLASSES
    parts = _assign(DirichletMix(alpha=alpha, samples_per_device=each), labels, devices, 0)
    count = np.array([np.bincount(labels[part], minlength=CLASSES) for part in parts])
    alike = (count * (count - 1)).sum(1) / (each * (each - 1))
    law = (alpha + 1.0) / (CLASSES * alpha + 1.0)
    yield check_mean(law, alike, "two of one class")
    of_share = law / CLASSES - 1.0 / CLASSES**2
    of_samples = (1.0 - law) / CLASSES / each
    deviation = np.sqrt((of_share + of_samples) / devices)
    yield largest((count.mean(0) / each - 1.0 / CLASSES) / deviation, "mean shares")
