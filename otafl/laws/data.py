"""Laws of data: random partitions, augmentation, and the noise of generated labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.data.augment import Augmentation, AugmentSettings
from otafl.data.dataset import DataSet
from otafl.data.loading import load
from otafl.data.partitions import Partition, PartitionTask
from otafl.data.partitions.dirichlet import Dirichlet
from otafl.data.partitions.dirichlet_mix import DirichletMix
from otafl.data.partitions.iid import Iid
from otafl.data.partitions.label_skew import LabelSkew
from otafl.data.partitions.lognormal import Lognormal
from otafl.data.ridge import Ridge
from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_square,
    check_share,
    counts,
    largest,
    state_law,
)

CLASSES = 10
CONCENTRATIONS = ("alpha={:g}", (0.01, 0.1, 1.0, 100.0))
PROPORTIONS = ("alpha={:g}", (0.2, 1.0, 5.0))
LABEL_NOISE = 0.3


def _assign(partition: Partition, labels: np.ndarray, devices: int, seed: int) -> list[np.ndarray]:
    """Return the samples of each device."""
    task = PartitionTask(labels, devices, np.random.default_rng(seed), None)
    return list(partition.assign_samples(task))


@state_law("partition iid: uniform", "chi-square")
def _iid(bench: Bench) -> Iterator[Check]:
    """Count the devices, of ten, that get sample 0 of 50."""
    labels, devices = np.zeros(50, np.int64), 10
    partitions = bench.scale_size(2000)
    found = [
        next(k for k, part in enumerate(_assign(Iid(), labels, devices, seed)) if 0 in part)
        for seed in range(partitions)
    ]
    yield counts(np.full(devices, partitions / devices), np.bincount(found, minlength=devices))


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


@state_law("partition dirichlet_mix: random order", "the last device is no other than the first")
def _mix_order(bench: Bench) -> Iterator[Check]:
    """Compare the largest class of the last four of 20 devices with that of all.

    The device that draws last takes what is left, which is a mix of more classes.
    """
    labels, devices = np.arange(2000) % CLASSES, 20
    largest = np.array(
        [
            [np.bincount(labels[part]).max() for part in parts]
            for parts in (
                _assign(DirichletMix(alpha=0.02), labels, devices, seed)
                for seed in range(bench.scale_size(200))
            )
        ]
    )
    yield check_mean(0.0, largest[:, -4:].mean(1) - largest.mean(1))


@state_law("partition label_skew: pairs of classes", "chi-square")
def _pairs(bench: Bench) -> Iterator[Check]:
    """Count the 45 pairs of classes of the first of five devices."""
    labels = np.arange(2 * CLASSES) % CLASSES
    found, partitions = np.zeros((CLASSES, CLASSES)), bench.scale_size(2000)
    for seed in range(partitions):
        low, high = np.unique(labels[_assign(LabelSkew(), labels, 5, seed)[0]])
        found[low, high] += 1
    pairs = found[np.triu_indices(CLASSES, 1)]
    yield counts(np.full(len(pairs), partitions / len(pairs)), pairs)


@state_law("partition lognormal: sizes", "deviation of the logarithms")
def _sizes(bench: Bench) -> Iterator[Check]:
    """Compare the variance of the logarithm of 300 large sizes with sigma^2."""
    sigma, devices = 0.8, bench.scale_size(300)
    parts = _assign(Lognormal(sigma=sigma), np.zeros(1000 * devices, np.int64), devices, 0)
    logs = np.log([len(part) for part in parts])
    yield check_exact(1000.0 * devices, float(sum(map(len, parts))), 0.0, "all samples")
    yield check_mean_square(sigma**2, logs.var(ddof=1) / sigma**2, devices - 1, "variance")


@state_law("data augmentation: offsets and flips", "chi-square; 1/2")
def _augment(bench: Bench) -> Iterator[Check]:
    """Count the nine offsets of images of 3 x 3 numbered pixels, and the flipped ones.

    An image whose middle column is inside on both sides is flipped if it falls from left to right.
    """
    count = bench.scale_size(4000)
    none, labels = np.empty((0, 1, 3, 3), np.float32), np.empty(0, np.int64)
    images = DataSet(none, labels, none, labels, 4)
    streams = Streams([1], [0], bench.torch_device)
    augment = Augmentation(AugmentSettings(crop=1, flip=True), images, streams)
    x = torch.arange(1.0, 10.0, device=bench.torch_device).view(1, 1, 1, 3, 3)
    zero = torch.zeros(1, dtype=torch.int64, device=bench.torch_device)
    seen = augment(x.expand(1, count, -1, -1, -1), zero, zero, zero, 0)[0, :, 0].cpu().numpy()
    centre = np.bincount(seen[:, 1, 1].astype(int), minlength=10)[1:]
    yield counts(np.full(9, count / 9), centre, "offsets")
    inside = seen[(seen[:, 1] > 0).all(1)]
    yield check_share(0.5, int((inside[:, 1, 0] > inside[:, 1, 2]).sum()), len(inside), "flipped")


@state_law("data ridge: label noise", "residual variance of least squares")
def _ridge(bench: Bench) -> Iterator[Check]:
    """Compare the residuals of all users' common weights with the noise of the labels."""
    samples = bench.scale_size(400)
    data = load(Ridge(optimum_spread=0.0, label_noise=LABEL_NOISE, user_samples=samples))
    x, y = data.x_train.astype(float), data.y_train.astype(float)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    freedom = left.size - x.shape[1]
    ratio = (left**2).sum() / freedom / LABEL_NOISE**2
    yield check_mean_square(LABEL_NOISE**2, ratio, freedom)
