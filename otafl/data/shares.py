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
from otafl.data.dealt import Dealt
from otafl.data.loading import split
from otafl.data.partitions import Deck
from otafl.data.partitions.base import Counts
from otafl.user_code.own import OwnPart

PARTITION = purpose("partition", __name__)


@dataclass(frozen=True)
class Shares:
    """Hold the samples of a trial's devices, as places in a data set: those they train on, their
    own test and validation samples."""

    train: Dealt
    test: Dealt
    validation: Dealt

    def split(self, devices: int) -> list[Shares]:
        """Return the shares of each so many devices."""
        parts = zip(
            *(one.split(devices) for one in (self.train, self.test, self.validation)), strict=True
        )
        return [Shares(*own) for own in parts]


def shared_out(source: DataSource, data: DataSet, devices: int, streams: Streams) -> list[Shares]:
    """Deal the samples out and return who has which, a trial each; trials that share all numbers
    share a partition."""
    parts: dict[int, Shares] = {}
    rows = []
    seeds = streams.seeds(PARTITION, 0)
    for seed, generator in zip(seeds, streams.generators(PARTITION), strict=True):
        if seed not in parts:
            deck = Deck(data.y_train, devices, generator, data.owner)
            of_device = source.partition.deal(deck)
            if source.test == "per_device" and not source.partition.shuffled:
                of_device = [generator.permutation(part) for part in of_device]
            parts[seed] = _shares(source, data, Dealt.of(of_device))
        rows.append(parts[seed])
    return rows


def known_counts(source: DataSource, devices: int, unknown: int) -> Counts:
    """Return what there is to deal out, by what a data set declares of itself; `unknown` samples or
    classes where it declares none. Raises UserError where it cannot be split."""
    train = unknown if source.samples is None else split(source, *source.samples).train
    return Counts(train, devices, source.classes or unknown, source.has_users)


def training_sizes(source: DataSource, devices: int) -> list[int]:
    """Return how many samples the devices train on, before the samples are read: of each where no
    draw decides it, else one number, their mean. None if the data set declares none, or cannot be
    split."""
    if isinstance(source, OwnPart) or source.samples is None:
        return []
    try:
        counts = known_counts(source, devices, source.samples[0])
        sizes = np.array(source.partition.sizes(counts) or [counts.samples // devices], np.int64)
        if source.test == "per_device":
            dealt = Dealt(np.arange(sizes.sum()), sizes)
            sizes = cut(dealt, source.test_share, source.validation).train.counts
    except UserError:
        return []
    return [int(size) for size in sizes]


def cut(parts: Dealt, test_share: float, validation_share: float) -> Shares:
    """Cut each device's samples, in order, into training, validation and test samples.

    The training part with validation is the whole number below 1 - test_share of all, as in
    pFedBreD's split; of that the last validation_share validates. Raises UserError where too few
    are left.
    """
    kept = ((1.0 - test_share) * parts.counts).astype(np.int64)
    held = np.rint(validation_share * kept).astype(np.int64)
    trains, tests = kept - held, parts.counts - kept
    short = (tests < 1) | (trains < 1) | ((held < 1) & (validation_share > 0))
    if short.any():
        k = int(short.argmax())
        raise UserError(
            f"data.test: per_device cuts a device's {parts.counts[k]} samples into {trains[k]} for "
            f"training, {held[k]} for validation and {tests[k]} for testing; each needs at least "
            "one: use fewer devices, another partition or another data.test_share"
        )
    return Shares(
        parts.part(np.zeros_like(kept), trains), parts.part(kept, tests), parts.part(trains, held)
    )


def of_classes(part: Indices, labels: Indices, others: Indices) -> Indices:
    """Return the places among `others` [m] (labels) of the classes that the samples `part` have; or
    of the users, where labels and others are users."""
    return np.flatnonzero(np.isin(others, np.unique(labels[part])))


def pack(parts: Sequence[Sequence[Indices]]) -> tuple[Indices, Indices]:
    """Return the parts of S trials by K devices as index [S, K, n_max] and count [S, K], int64. A
    row is padded with the device's first sample."""
    dealt = [Dealt.of(trial) for trial in parts]
    count = np.stack([trial.counts for trial in dealt])
    width = int(count.max())
    return np.stack([trial.padded(width) for trial in dealt]), count


def count_classes(y: Tensor, count: Tensor, classes: int) -> Tensor:
    """Return how many of the first count [n] labels y [n, m] of each row are of each class,
    [n, classes] int64."""
    held = torch.arange(y.shape[1], device=y.device) < count[:, None]
    row = torch.arange(len(y), device=y.device)[:, None]
    key = (row * classes + y)[held]
    return torch.bincount(key, minlength=len(y) * classes).view(-1, classes)


def _shares(source: DataSource, data: DataSet, parts: Dealt) -> Shares:
    """Return what the devices have, of their parts of the training samples."""
    if source.test == "per_device":
        return cut(parts, source.test_share, source.validation)
    if not source.own_test:
        nothing = Dealt(parts.places[:0], np.zeros_like(parts.counts))
        return Shares(parts, nothing, nothing)
    of, others = data.y_train, data.y_test
    if source.partition.by_user and data.owner is not None:
        assert data.owner_test is not None  # a data set's users are in both of its parts
        of, others = data.owner, data.owner_test
    return Shares(
        parts,
        Dealt.of([of_classes(part, of, others) for part in parts]),
        Dealt.of([of_classes(part, data.y_train, data.y_validation) for part in parts]),
    )
