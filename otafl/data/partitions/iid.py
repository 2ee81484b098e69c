"""IID partition: shuffled samples, divided evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from otafl.data.partitions.base import Partition, PartitionTask, SampleCounts
from otafl.data.sample_assignment import SampleAssignment


class Iid(Partition):
    """Partition with numbers of samples that differ by at most one."""

    is_shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"

    def get_sizes(self, counts: SampleCounts) -> Sequence[int]:
        least, more = divmod(counts.samples, counts.devices)
        return [least + 1] * more + [least] * (counts.devices - more)

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        return SampleAssignment.split_evenly(task.draw_permutation(), task.devices)
