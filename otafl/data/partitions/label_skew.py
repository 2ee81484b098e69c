"""Label skew: samples of a fixed number of classes on each device."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import (
    MAX_SIGMA,
    Partition,
    PartitionTask,
    SampleCounts,
    split_lognormal,
)


class LabelSkew(Partition):
    """Partition of each class over its devices, with as equal numbers of devices as possible."""

    needs_classes: ClassVar[bool] = True

    name: Literal["label_skew"] = "label_skew"
    classes_per_device: int = Field(2, ge=1)
    """number of classes of a device"""
    size_sigma: float = Field(0.0, ge=0, le=MAX_SIGMA)
    """standard deviation of the logarithm of a device's share of each of its classes; 0 splits a
    class evenly"""

    def check_counts(self, counts: SampleCounts) -> None:
        if self.classes_per_device > counts.classes:
            raise UserError(
                f"data.partition.classes_per_device: got {self.classes_per_device}; must be at "
                f"most {counts.classes}, the number of classes"
            )
        counts.check_samples_per_device("classes_per_device", self.classes_per_device)

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        self.check_counts(task.counts)
        classes, each = task.shuffle_by_class(), self.classes_per_device
        devices, generator = task.devices, task.generator
        holders = _draw_holders(len(classes), each, task)
        parts: list[list[Indices]] = [[] for _ in range(devices)]
        for members, of_class in zip(classes, holders, strict=True):
            if len(of_class) > len(members):
                raise UserError(
                    f"devices.count: {len(of_class)} of {devices} devices share the "
                    f"{len(members)} samples of class {task.labels[members[0]]}; use fewer "
                    "devices, or a smaller data.partition.classes_per_device"
                )
            if of_class:
                pieces = split_lognormal(members, len(of_class), self.size_sigma, 1, generator)
                for device, piece in zip(of_class, pieces, strict=True):
                    parts[device].append(piece)
        return [np.concatenate(pieces) for pieces in parts]


def _draw_holders(classes: int, classes_per_device: int, task: PartitionTask) -> list[list[int]]:
    """Draw the devices of each class, in random order.

    Each device takes the classes with the fewest devices so far, with ties broken at random. The
    number of devices therefore never differs by more than one.
    """
    holders: list[list[int]] = [[] for _ in range(classes)]
    for device in task.generator.permutation(task.devices):
        tie = task.generator.permutation(classes)
        held = np.array([len(holders[c]) for c in tie])
        for c in tie[np.argsort(held, kind="stable")[:classes_per_device]]:
            holders[c].append(int(device))
    return holders
