"""Proportions of each class over the devices from a symmetric Dirichlet distribution.

References
----------
Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import Partition, PartitionTask, SampleCounts
from otafl.data.sample_assignment import SampleAssignment

_TRIES = 100


class Dirichlet(Partition):
    """Partition whose proportions are drawn again until every device has enough samples."""

    needs_classes: ClassVar[bool] = True

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0)
    """concentration; the smaller, the more heterogeneous"""
    min_samples: int = Field(1, ge=1)
    """smallest number of samples of a device; proportions are drawn again until all devices have
    it"""

    def check_counts(self, counts: SampleCounts) -> None:
        counts.check_samples_per_device("min_samples", self.min_samples)

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        self.check_counts(task.counts)
        classes, devices, samples = task.shuffle_by_class(), task.devices, len(task.labels)
        for _ in range(_TRIES):
            parts = self._draw_assignment(classes, task)
            if parts.counts.min() >= self.min_samples:
                return parts
        raise UserError(
            f"data.partition.alpha: got {self.alpha}; in none of {_TRIES} draws does each of "
            f"{devices} devices get {self.min_samples} of {samples} samples; use a larger "
            "alpha, a smaller data.partition.min_samples or a smaller devices.count"
        )

    def _draw_assignment(self, classes: list[Indices], task: PartitionTask) -> SampleAssignment:
        """Assign the samples by one draw of the proportions, in which a device can have none."""
        device = []
        for members in classes:
            share = task.generator.dirichlet(np.full(task.devices, self.alpha))
            cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
            sizes = np.diff(cuts, prepend=0, append=len(members))
            device.append(np.repeat(np.arange(task.devices), sizes))
        return SampleAssignment.group_by_device(
            np.concatenate(classes), np.concatenate(device), task.devices
        )
