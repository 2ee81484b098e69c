"""Shuffled samples in parts of log-normal sizes.

References
----------
Li et al. 2020, "Federated Optimization in Heterogeneous Networks", section 5.1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.data.partitions.base import (
    MAX_SIGMA,
    Partition,
    PartitionTask,
    SampleCounts,
    split_lognormal,
)
from otafl.data.sample_assignment import SampleAssignment


class Lognormal(Partition):
    """Partition with numbers of samples in proportion to log-normal numbers."""

    is_shuffled: ClassVar[bool] = True

    name: Literal["lognormal"] = "lognormal"
    sigma: float = Field(1.0, ge=0, le=MAX_SIGMA)
    """standard deviation of the logarithm of a device's size"""
    min_samples: int = Field(1, ge=1)
    """number of samples that every device gets before the log-normal shares"""

    def check_counts(self, counts: SampleCounts) -> None:
        counts.check_samples_per_device("min_samples", self.min_samples)

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        self.check_counts(task.counts)
        least = self.min_samples
        return split_lognormal(
            task.draw_permutation(), task.devices, self.sigma, least, task.generator
        )
