"""User-defined partition: a function that divides the samples.

    partition(deck, **options) -> the samples of each device

`deck` is an `otafl.data.partitions.PartitionTask` with the labels, the number of devices and the
random generator of the trial. The function returns K lists or arrays of sample indices, disjoint
and not empty. A sample can be left out. The options are the other keys of the section. The
attributes `shuffled` and `groups_users` of the function stand for `is_shuffled` and `groups_users`
of `Partition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

import numpy as np
from pydantic import ConfigDict

from otafl.data.partitions.base import Partition, PartitionTask, SampleAssignment
from otafl.user_code.custom_part import CustomFunction


class CustomPartition(CustomFunction, Partition):
    """Partition of a user-defined function, whose result is checked."""

    model_config = ConfigDict(extra="allow", frozen=True)

    table: ClassVar = "partition"
    positional_names: ClassVar = ("deck",)

    @property
    def is_shuffled(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.find_function(), "shuffled", False))

    @property
    def groups_users(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.find_function(), "groups_users", False))

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        returned = self.call(task)
        if not isinstance(returned, Sequence | np.ndarray) or isinstance(returned, str):
            self._refuse(f"type {type(returned).__name__}", "a list with one item for each device")
        if len(returned) != task.devices:
            self._refuse(f"the samples of {len(returned)} devices", f"those of {task.devices}")
        parts = [np.asarray(part) for part in returned]
        for device, one in enumerate(parts):
            if one.ndim != 1 or not len(one) or one.dtype.kind not in "iu":
                got = f"shape {list(one.shape)} and type {one.dtype} for device {device}"
                self._refuse(got, "at least one sample, as an array [n] of whole numbers")
        assigned = SampleAssignment.from_parts([one.astype(np.int64) for one in parts])
        samples = len(task.labels)
        if not ((assigned.sample_index >= 0) & (assigned.sample_index < samples)).all():
            self._refuse("indices out of range", f"whole numbers from 0 to {samples - 1}")
        times = np.bincount(assigned.sample_index, minlength=samples)
        if times.max() > 1:
            self._refuse(f"sample {times.argmax()} {times.max()} times", "each once at most")
        return assigned

    def _refuse(self, fault: str, wanted: str) -> NoReturn:
        """Raise UserError for a result of the function."""
        self.refuse(f"returned {fault}; expected {wanted}")
