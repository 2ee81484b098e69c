"""Choose what each device trains on, and its own test and validation samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_purpose
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Indices
from otafl.data.loading import split
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.base import SampleCounts
from otafl.data.sample_assignment import SampleAssignment
from otafl.user_code.custom_part import CustomPart

PARTITION = declare_purpose("partition", __name__)


@dataclass(frozen=True)
class DeviceSplits:
    """Hold the samples of a trial's devices, as places in a data set: those they train on, their
    own test and validation samples."""

    train: SampleAssignment
    test: SampleAssignment
    validation: SampleAssignment

    def split(self, devices: int) -> list[DeviceSplits]:
        """Return the shares of each so many devices."""
        parts = zip(
            *(one.split(devices) for one in (self.train, self.test, self.validation)), strict=True
        )
        return [DeviceSplits(*own) for own in parts]


def partition_samples(
    source: DataSource, data: DataSet, num_devices: int, streams: Streams
) -> list[DeviceSplits]:
    """Deal the samples out and return who has which, a trial each; trials that share all numbers
    share a partition."""
    for problem in source.partition.find_misfits(data.labels):
        raise UserError(problem)
    parts: dict[int, DeviceSplits] = {}
    rows = []
    seeds = streams.draw_seeds(PARTITION, 0)
    for seed, generator in zip(seeds, streams.make_generators(PARTITION), strict=True):
        if seed not in parts:
            deck = PartitionTask(data.class_labels, num_devices, generator, data.owner)
            of_device = source.partition.assign_samples(deck)
            if source.test == "per_device" and not source.partition.is_shuffled:
                of_device = [generator.permutation(part) for part in of_device]
            parts[seed] = _split_devices(source, data, SampleAssignment.from_parts(of_device))
        rows.append(parts[seed])
    return rows


def get_declared_counts(source: DataSource, devices: int, unknown: int) -> SampleCounts:
    """Return what there is to deal out, by what a data set declares of itself; `unknown` samples or
    classes where it declares none. Raises UserError where it cannot be split."""
    train = unknown if source.samples is None else split(source, *source.samples).train
    return SampleCounts(train, devices, source.classes or unknown, source.has_users)


def get_training_sizes(source: DataSource, devices: int) -> list[int]:
    """Return how many samples the devices train on, before the samples are read: of each where no
    draw decides it, else one number, their mean. None if the data set declares none, or cannot be
    split."""
    if isinstance(source, CustomPart) or source.samples is None:
        return []
    try:
        counts = get_declared_counts(source, devices, source.samples[0])
        sizes = np.array(
            source.partition.get_sizes(counts) or [counts.samples // devices], np.int64
        )
        if source.test == "per_device":
            dealt = SampleAssignment(np.arange(sizes.sum()), sizes)
            sizes = split_parts(dealt, source.test_share, source.validation).train.counts
    except UserError:
        return []
    return [int(size) for size in sizes]


def split_parts(
    parts: SampleAssignment, test_share: float, validation_share: float
) -> DeviceSplits:
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
    return DeviceSplits(
        parts.slice_parts(np.zeros_like(kept), trains),
        parts.slice_parts(kept, tests),
        parts.slice_parts(trains, held),
    )


def select_classes(part: Indices, labels: Indices, other_labels: Indices) -> Indices:
    """Return the places among `other_labels` [m] (labels) of the classes that the samples `part`
    have; or of the users, where labels and others are users."""
    return np.flatnonzero(np.isin(other_labels, np.unique(labels[part])))


def pack(parts: Sequence[Sequence[Indices]]) -> tuple[Indices, Indices]:
    """Return the parts of S trials by K devices as index [S, K, n_max] and count [S, K], int64. A
    row is padded with the device's first sample."""
    dealt = [SampleAssignment.from_parts(trial) for trial in parts]
    count = np.stack([trial.counts for trial in dealt])
    width = int(count.max())
    return np.stack([trial.pad(width) for trial in dealt]), count


def count_classes(y: Tensor, counts: Tensor, classes: int) -> Tensor:
    """Return how many of the first count [n] labels y [n, m] of each row are of each class,
    [n, classes] int64."""
    held = torch.arange(y.shape[1], device=y.device) < counts[:, None]
    row = torch.arange(len(y), device=y.device)[:, None]
    key = (row * classes + y)[held]
    return torch.bincount(key, minlength=len(y) * classes).view(-1, classes)


def _split_devices(source: DataSource, data: DataSet, parts: SampleAssignment) -> DeviceSplits:
    """Return what the devices have, of their parts of the training samples."""
    if source.test == "per_device":
        return split_parts(parts, source.test_share, source.validation)
    if not source.own_test:
        nothing = SampleAssignment(parts.sample_index[:0], np.zeros_like(parts.counts))
        return DeviceSplits(parts, nothing, nothing)
    by_user = source.partition.groups_users and data.owner is not None
    if data.labels != "classes" and (not by_user or len(data.y_validation)):
        raise UserError(
            "data.own_test: samples have no classes by which devices get test and validation "
            "samples of their own; use data.test: per_device"
        )
    of, others = data.y_train, data.y_test
    if by_user:
        assert data.owner is not None
        assert data.owner_test is not None  # a data set's users are in both of its parts
        of, others = data.owner, data.owner_test
    return DeviceSplits(
        parts,
        SampleAssignment.from_parts([select_classes(part, of, others) for part in parts]),
        SampleAssignment.from_parts(
            [select_classes(part, data.y_train, data.y_validation) for part in parts]
        ),
    )
