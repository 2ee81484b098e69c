"""Partitions by classes: shards, Dirichlet proportions, and a fixed number of classes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import (
    Partition,
    PartitionTask,
    SampleAssignment,
    concatenate_ranges,
)


class Shards(Partition):
    """Shards: samples sorted by label and cut into equal shards, a few for each device.

    References
    ----------
    McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized
        Data", section 3.
    """

    needs_classes: ClassVar[bool] = True

    name: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1)
    """number of shards of a device"""

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        each, devices = self.shards_per_device, task.devices
        task.check_samples_per_device("shards_per_device", each)
        shuffled = task.draw_permutation()  # decides which samples of a class share a shard
        order = shuffled[np.argsort(task.labels[shuffled], kind="stable")]
        shards = SampleAssignment.split_evenly(order, devices * each)
        hands = task.generator.permutation(devices * each)
        sizes = shards.counts[hands]
        return SampleAssignment(
            order[concatenate_ranges(shards.starts[hands], sizes)],
            sizes.reshape(devices, each).sum(1),
        )


class LabelSkew(Partition):
    """Label skew: samples of a fixed number of classes on each device."""

    needs_classes: ClassVar[bool] = True

    name: Literal["label_skew"] = "label_skew"
    classes_per_device: int = Field(2, ge=1)
    """number of classes of a device"""

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        each = self.classes_per_device
        task.check_classes_per_device(each)
        task.check_samples_per_device("classes_per_device", each)
        classes = task.shuffle_by_class()
        devices = task.devices
        # each device takes the classes with the fewest devices so far, ties broken at random, so
        # their numbers of devices never differ by more than one
        holders: list[list[int]] = [[] for _ in classes]
        for device in task.generator.permutation(devices):
            tie = task.generator.permutation(len(classes))
            held = np.array([len(holders[c]) for c in tie])
            for c in tie[np.argsort(held, kind="stable")[:each]]:
                holders[c].append(int(device))
        parts: list[list[Indices]] = [[] for _ in range(devices)]
        for members, of_class in zip(classes, holders, strict=True):
            if len(of_class) > len(members):
                raise UserError(
                    f"devices.count: {len(of_class)} of {devices} devices share the "
                    f"{len(members)} samples of class {task.labels[members[0]]}; use fewer "
                    "devices, or a smaller data.partition.classes_per_device"
                )
            if of_class:
                pieces = SampleAssignment.split_evenly(members, len(of_class))
                for device, piece in zip(of_class, pieces, strict=True):
                    parts[device].append(piece)
        return [np.concatenate(pieces) for pieces in parts]


_TRIES = 100


class Dirichlet(Partition):
    """Proportions of each class over the devices from a symmetric Dirichlet distribution.

    References
    ----------
    Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section
        4.
    """

    needs_classes: ClassVar[bool] = True

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0)
    """concentration; the smaller, the more heterogeneous"""
    min_samples: int = Field(1, ge=1)
    """smallest number of samples of a device; proportions are drawn again until all devices have
    it"""

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        task.check_samples_per_device("min_samples", self.min_samples)
        classes, devices, samples = task.shuffle_by_class(), task.devices, len(task.labels)
        for _ in range(_TRIES):
            owners = []  # by one draw of the proportions, in which a device can have none
            for members in classes:
                share = task.generator.dirichlet(np.full(devices, self.alpha))
                cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
                sizes = np.diff(cuts, prepend=0, append=len(members))
                owners.append(np.repeat(np.arange(devices), sizes))
            order, owner = np.concatenate(classes), np.concatenate(owners)
            parts = SampleAssignment.group_by_device(order, owner, devices)
            if parts.counts.min() >= self.min_samples:
                return parts
        raise UserError(
            f"data.partition.alpha: got {self.alpha}; in none of {_TRIES} draws does each of "
            f"{devices} devices get {self.min_samples} of {samples} samples; use a larger "
            "alpha, a smaller data.partition.min_samples or a smaller devices.count"
        )


class DirichletMix(Partition):
    """Equally many samples on each device, with class proportions from a symmetric Dirichlet.

    Once a class is used up, a device draws from the other classes. The last devices must take the
    samples that are left, so the devices choose in random order.

    References
    ----------
    Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated
        Visual Classification", section 3.1.
    """

    needs_classes: ClassVar[bool] = True

    is_shuffled: ClassVar[bool] = True

    name: Literal["dirichlet_mix"] = "dirichlet_mix"
    alpha: float = Field(0.5, gt=0)
    """concentration; the smaller, the more heterogeneous"""
    samples_per_device: int | None = Field(None, ge=1)
    """number of samples of a device; if not given, all samples, divided evenly"""

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        devices, generator = task.devices, task.generator
        each = self.samples_per_device or len(task.labels) // devices
        task.check_samples_per_device("samples_per_device", each)
        members = task.shuffle_by_class()
        given = np.zeros(len(members), np.int64)
        stock = np.array([len(own) for own in members])
        parts: list[Indices] = [np.empty(0, np.int64)] * devices
        for device in generator.permutation(devices):
            count = np.zeros_like(stock)
            # some components of a Dirichlet vector, scaled to sum to one, follow one too
            mix = generator.dirichlet(np.full(len(stock), self.alpha))
            while count.sum() < each:  # samples that a class lacks are drawn from the others
                left = stock - given - count
                mix = np.where(left > 0, mix, 0.0)
                if mix.sum() == 0.0:  # the proportions of the others are too small for a float
                    some = left > 0
                    mix[some] = generator.dirichlet(np.full(some.sum(), self.alpha))
                wanted = generator.multinomial(each - count.sum(), mix / mix.sum())
                count += np.minimum(wanted, left)
            pieces = [
                own[start : start + n] for own, start, n in zip(members, given, count, strict=True)
            ]
            given += count
            parts[device] = generator.permutation(np.concatenate(pieces))
        return parts
