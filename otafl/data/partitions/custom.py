"""User-defined partition: a function that divides the samples.

    partition(deck, **options) -> the samples of each device

`deck` is an `otafl.data.partitions.PartitionTask` with the labels, the number of devices and the
random generator of the trial. The function returns K lists or arrays of sample indices, disjoint
and not empty. A sample can be left out. The options are the other keys of the section. The
attributes `shuffled` and `groups_users` of the function stand for `is_shuffled` and `groups_users`
of `Partition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from pydantic import ConfigDict

from otafl.data.dataset import Indices
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
        parts = [
            self._to_sample_index(part, device)
            for device, part in enumerate(self._check_parts(returned))
        ]
        if len(parts) != task.devices:
            self._refuse(f"the samples of {len(parts)} devices", f"those of {task.devices}")
        assigned = SampleAssignment.from_parts(parts)
        samples = len(task.labels)
        if not ((assigned.sample_index >= 0) & (assigned.sample_index < samples)).all():
            self._refuse("indices out of range", f"whole numbers from 0 to {samples - 1}")
        times = np.bincount(assigned.sample_index, minlength=samples)
        if times.max() > 1:
            self._refuse(f"sample {times.argmax()} {times.max()} times", "each once at most")
        return assigned

    def _check_parts(self, returned: Any) -> Iterable[Any]:
        """Return the result if it is a list. Raises UserError otherwise."""
        if not isinstance(returned, Sequence | np.ndarray) or isinstance(returned, str):
            self._refuse(f"type {type(returned).__name__}", "a list with one item for each device")
        return returned

    def _to_sample_index(self, part: Any, device: int) -> Indices:
        """Return a device's samples as an array [n]. Raises UserError if they are not indices."""
        places = np.asarray(part)
        if places.ndim != 1 or not len(places) or places.dtype.kind not in "iu":
            got = f"shape {list(places.shape)} and type {places.dtype}"
            wanted = "at least one sample, as an array [n] of whole numbers"
            self._refuse(f"{got} for device {device}", wanted)
        return places.astype(np.int64)

    def _refuse(self, fault: str, wanted: str) -> NoReturn:
        """Raise UserError for a result of the function."""
        self.refuse(f"returned {fault}; expected {wanted}")
