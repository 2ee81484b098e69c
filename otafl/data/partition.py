"""Splits the training samples over the devices, once for each trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data.class_window import class_window
from otafl.data.config import (
    DirichletConfig,
    LabelSkewConfig,
    PartitionConfig,
    ShardsConfig,
)
from otafl.data.config_partition import (
    ClassWindowConfig,
    DirichletMixConfig,
    LognormalConfig,
    NaturalConfig,
)
from otafl.data.mixes import cut_lognormal, dirichlet_mix, lognormal
from otafl.data.natural import natural

Indices = NDArray[np.int64]

_TRIES = 100


def partition(
    config: PartitionConfig,
    labels: Indices,
    devices: int,
    generator: np.random.Generator,
    owner: Indices | None = None,
) -> list[Indices]:
    """The samples of each device: `devices` disjoint index arrays, none empty.

    labels: [n] int64. owner: [n] int64, the user that each sample is from, which `natural` needs.
    A sample can be left to no device. UserError if there are too few samples, classes or users
    for what is asked.
    """
    if devices > len(labels):
        raise UserError(
            f"devices.count: {devices} devices need a training sample each and there are "
            f"{len(labels)}; use fewer devices"
        )
    if isinstance(config, ShardsConfig):
        return _shards(labels, devices, config.shards_per_device, generator)
    if isinstance(config, DirichletConfig):
        return _dirichlet(labels, devices, config, generator)
    if isinstance(config, LabelSkewConfig):
        return _label_skew(labels, devices, config, generator)
    if isinstance(config, LognormalConfig):
        return lognormal(len(labels), devices, config, generator)
    if isinstance(config, DirichletMixConfig):
        return dirichlet_mix(labels, devices, config, generator)
    if isinstance(config, ClassWindowConfig):
        return class_window(labels, devices, config, generator)
    if isinstance(config, NaturalConfig):
        return natural(owner, devices, config, generator)
    return np.array_split(generator.permutation(len(labels)), devices)


def pack(parts: list[list[Indices]]) -> tuple[Indices, Indices]:
    """The parts of S trials by K devices as index [S, K, n_max] and count [S, K], int64. A row is
    padded with the device's first sample."""
    count = np.array([[len(part) for part in trial] for trial in parts], np.int64)
    index = np.empty((*count.shape, count.max()), np.int64)
    for s, trial in enumerate(parts):
        for k, part in enumerate(trial):
            index[s, k] = part[0]
            index[s, k, : len(part)] = part
    return index, count


def _shards(
    labels: Indices, devices: int, each: int, generator: np.random.Generator
) -> list[Indices]:
    """Sorted by label, cut into equal shards (sizes differ by at most one), dealt out."""
    if devices * each > len(labels):
        raise UserError(
            f"data.partition.shards_per_device: {devices} devices x {each} shards are more than "
            f"the {len(labels)} training samples; use fewer shards or a smaller devices.count"
        )
    shuffled = generator.permutation(len(labels))  # which of a class's samples share a shard
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    shards = np.array_split(order, devices * each)
    deal = generator.permutation(devices * each).reshape(devices, each)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in deal]


def _dirichlet(
    labels: Indices, devices: int, config: DirichletConfig, generator: np.random.Generator
) -> list[Indices]:
    classes = _by_class(labels, generator)
    if config.min_samples * devices <= len(labels):
        for _ in range(_TRIES):
            parts = _dirichlet_once(classes, devices, config.alpha, generator)
            if min(map(len, parts)) >= config.min_samples:
                return parts
    raise UserError(
        f"data.partition.alpha: {config.alpha} gave none of {_TRIES} draws in which each of "
        f"{devices} devices gets {config.min_samples} of {len(labels)} samples; use a larger "
        "alpha, a smaller data.partition.min_samples or a smaller devices.count"
    )


def _dirichlet_once(
    classes: list[Indices], devices: int, alpha: float, generator: np.random.Generator
) -> list[Indices]:
    """One draw; a device's part can be empty."""
    pieces = []
    for members in classes:
        share = generator.dirichlet(np.full(devices, alpha))
        cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
        pieces.append(np.split(members, cuts))
    return [np.concatenate(of_device) for of_device in zip(*pieces, strict=True)]


def _label_skew(
    labels: Indices, devices: int, config: LabelSkewConfig, generator: np.random.Generator
) -> list[Indices]:
    classes, each = _by_class(labels, generator), config.classes_per_device
    if each > len(classes):
        raise UserError(
            f"data.partition.classes_per_device: {each} is more than the {len(classes)} classes of "
            "the training samples"
        )
    holders = _holders(len(classes), devices, each, generator)
    parts: list[list[Indices]] = [[] for _ in range(devices)]
    for members, of_class in zip(classes, holders, strict=True):
        if len(of_class) > len(members):
            raise UserError(
                f"devices.count: {len(of_class)} of {devices} devices would share the "
                f"{len(members)} samples of class {labels[members[0]]}; use fewer devices, or a "
                "smaller data.partition.classes_per_device"
            )
        if of_class:
            pieces = cut_lognormal(members, len(of_class), config.size_sigma, 1, generator)
            for device, piece in zip(of_class, pieces, strict=True):
                parts[device].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


def _holders(
    classes: int, devices: int, each: int, generator: np.random.Generator
) -> list[list[int]]:
    """The devices that hold each class, in random order. Each device takes the classes that the
    fewest hold so far, ties broken at random: numbers of holders never differ by more than one."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    for device in generator.permutation(devices):
        tie = generator.permutation(classes)
        held = np.array([len(holders[c]) for c in tie])
        for c in tie[np.argsort(held, kind="stable")[:each]]:
            holders[c].append(int(device))
    return holders


def _by_class(labels: Indices, generator: np.random.Generator) -> list[Indices]:
    """The samples of each class that occurs, shuffled."""
    return [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
