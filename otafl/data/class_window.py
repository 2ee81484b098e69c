"""The split of pFedMe and pFedBreD: device u holds the classes u, u + 1, ..., in unequal amounts.

Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", section 5.1; Shi
et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated
Learning", section 6.1. The authors' generators of random numbers and the order of their draws are
kept, so that a seed gives their split.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data.config_partition import ClassWindowConfig

Indices = NDArray[np.int64]


def class_window(
    labels: Indices, devices: int, config: ClassWindowConfig, generator: np.random.Generator
) -> list[Indices]:
    """The samples of each device in the order in which they are cut into training and test
    samples. A class's samples are given out from the first on. `generator` seeds the split where
    the settings do not."""
    first, rest = config.split_seed or generator.integers(2**32, size=2)
    numpy_s, pythons = np.random.RandomState(int(first)), random.Random(int(rest))
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    window = _windows(len(members), devices, config)
    parts, given = _first(members, window, config)
    # float [classes, devices, window]; of the devices' axis only the first few places are read.
    share = numpy_s.lognormal(0, config.sigma, (len(members), *window.shape))
    room = np.array([max(0, len(own) - config.reserve) for own in members])
    share = room[:, None, None] * share / share.sum((1, 2), keepdims=True)
    group = max(1, devices // len(members))
    for device, classes in enumerate(window):
        for j, c in enumerate(classes):
            extra = pythons.randint(*config.extra)
            multiple = _draw(pythons, *config.multiple)
            count = (int(share[c, device // group, j]) * multiple + extra) * config.times
            if given[c] + count < len(members[c]):  # else none: the class is (nearly) used up
                parts[device].extend(members[c][given[c] : given[c] + count])
                given[c] += count
    for part in parts:
        pythons.shuffle(part)
        if config.test_first:
            part.reverse()
    return [np.array(part, np.int64) for part in parts]


def published_labels(labels: Indices, devices: int, config: ClassWindowConfig) -> Indices:
    """The labels [n] that the samples bear: with `mislabel_first` the first samples that a device
    got of its j-th class have the label j. The same for every trial, whatever the seed."""
    if not config.mislabel_first:
        return labels
    members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
    window = _windows(len(members), devices, config)
    parts, _ = _first(members, window, config)
    borne = labels.copy()
    place = np.repeat(np.arange(window.shape[1]), config.first_samples)
    for part in parts:
        borne[part] = place
    return borne


def _windows(classes: int, devices: int, config: ClassWindowConfig) -> Indices:
    """[devices, classes_per_device] int64."""
    if config.classes_per_device > classes:
        raise UserError(
            f"data.partition.classes_per_device: {config.classes_per_device} is more than the "
            f"{classes} classes of the samples"
        )
    return (np.arange(devices)[:, None] + np.arange(config.classes_per_device)) % classes


def _first(
    members: list[Indices], window: Indices, config: ClassWindowConfig
) -> tuple[list[list[int]], Indices]:
    """What every device gets first, class by class, and how much of each class that is."""
    given = np.zeros(len(members), np.int64)
    parts: list[list[int]] = []
    for classes in window:
        part: list[int] = []
        for c in classes:
            part.extend(members[c][given[c] : given[c] + config.first_samples])
            given[c] += config.first_samples
        parts.append(part)
    short = [c for c, own in enumerate(members) if given[c] > len(own)]
    if short:
        c = short[0]
        raise UserError(
            f"data.partition.first_samples: {len(window)} devices would get {given[c]} samples of "
            f"class {c} first, of which there are {len(members[c])}; fewer first samples, a "
            "smaller classes_per_device or fewer devices would do"
        )
    return parts, given


def _draw(pythons: random.Random, low: int, high: int) -> int:
    """A whole number from low to high; none is drawn where there is no choice, as in the split of
    CIFAR-10, which has no factor."""
    return low if low == high else pythons.randint(low, high)
