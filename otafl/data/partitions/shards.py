"""Shards: samples sorted by label and cut into equal shards, a few for each device.

References
----------
McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    section 3.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.data.partitions.base import Partition, PartitionTask, SampleCounts
from otafl.data.sample_assignment import SampleAssignment, concatenate_ranges


class Shards(Partition):
    """Partition with shards assigned at random; their sizes differ by at most one."""

    needs_classes: ClassVar[bool] = True

    name: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1)
    """number of shards of a device"""

    def check_counts(self, counts: SampleCounts) -> None:
        counts.check_samples_per_device("shards_per_device", self.shards_per_device)

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        self.check_counts(task.counts)
        each, devices = self.shards_per_device, task.devices
        shuffled = task.draw_permutation()  # decides which samples of a class share a shard
        order = shuffled[np.argsort(task.labels[shuffled], kind="stable")]
        shards = SampleAssignment.split_evenly(order, devices * each)
        hands = task.generator.permutation(devices * each)
        sizes = shards.counts[hands]
        return SampleAssignment(
            order[concatenate_ranges(shards.starts[hands], sizes)],
            sizes.reshape(devices, each).sum(1),
        )
