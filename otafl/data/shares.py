"""Choose what each device trains on, and its own test and validation samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.rng import Streams, purpose
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Indices
from otafl.data.partitions import Deck

PARTITION = purpose("partition", __name__)


@dataclass(frozen=True)
class Shares:
    """Hold a device's samples, as places in a data set: those it trains on, its own test and
    validation samples."""

    train: Indices
    test: Indices
    validation: Indices


def shared_out(
    source: DataSource, data: DataSet, devices: int, streams: Streams
) -> list[list[Shares]]:
    """Deal the samples out and return who has which, [S][K]; trials that share all numbers share a
    partition."""
    parts: dict[int, list[Shares]] = {}
    rows = []
    seeds = streams.seeds(PARTITION, 0)
    for seed, generator in zip(seeds, streams.generators(PARTITION), strict=True):
        if seed not in parts:
            deck = Deck(data.y_train, devices, generator, data.owner)
            of_device = source.partition.deal(deck)
            if source.test == "per_device" and not source.partition.shuffled:
                of_device = [generator.permutation(part) for part in of_device]
            parts[seed] = [_shares(source, data, part) for part in of_device]
        rows.append(parts[seed])
    return rows


def cut(part: Indices, test_share: float, validation_share: float) -> Shares:
    """Cut a device's samples, in order, into training, validation and test samples.

    The training part with validation is the whole number below 1 - test_share of all, as in
    pFedBreD's split; of that the last validation_share validates. Raises UserError where too few
    are left.
    """
    kept = int((1.0 - test_share) * len(part))
    held = round(validation_share * kept)
    if len(part) - kept < 1 or kept - held < 1 or (validation_share > 0 and held < 1):
        raise UserError(
            f"data.test: per_device cuts a device's {len(part)} samples into {kept - held} for "
            f"training, {held} for validation and {len(part) - kept} for testing; each needs at "
            "least one: use fewer devices, another partition or another data.test_share"
        )
    return Shares(part[: kept - held], part[kept:], part[kept - held : kept])


def of_classes(part: Indices, labels: Indices, others: Indices) -> Indices:
    """Return the places among `others` [m] (labels) of the classes that the samples `part` have; or
    of the users, where labels and others are users."""
    return np.flatnonzero(np.isin(others, np.unique(labels[part])))


def pack(parts: Sequence[Sequence[Indices]]) -> tuple[Indices, Indices]:
    """Return the parts of S trials by K devices as index [S, K, n_max] and count [S, K], int64. A
    row is padded with the device's first sample."""
    count = np.array([[len(part) for part in trial] for trial in parts], np.int64)
    index = np.empty((*count.shape, count.max()), np.int64)
    for s, trial in enumerate(parts):
        for k, part in enumerate(trial):
            index[s, k] = part[0]
            index[s, k, : len(part)] = part
    return index, count


def class_counts(y: Tensor, count: Tensor, classes: int) -> Tensor:
    """Return how many of the first count [n] labels y [n, m] of each row are of each class,
    [n, classes] int64."""
    held = torch.arange(y.shape[1], device=y.device) < count[:, None]
    row = torch.arange(len(y), device=y.device)[:, None]
    key = (row * classes + y)[held]
    return torch.bincount(key, minlength=len(y) * classes).view(-1, classes)


def _shares(source: DataSource, data: DataSet, part: Indices) -> Shares:
    """Return what a device has, of its part of the training samples."""
    if source.test == "per_device":
        return cut(part, source.test_share, source.validation)
    if not source.own_test:
        return Shares(part, part[:0], part[:0])
    test = of_classes(part, data.y_train, data.y_test)
    if source.partition.by_user and data.owner is not None:
        assert data.owner_test is not None  # a data set's users are in both of its parts
        test = of_classes(part, data.owner, data.owner_test)
    return Shares(part, test, of_classes(part, data.y_train, data.y_validation))
