"""Samples dealt out by a partition, without a scenario."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otafl.data.dataset import Indices
from otafl.data.partitions import Partition, PartitionTask


def assign_samples(
    partition: Partition,
    labels: Indices,
    devices: int,
    generator: np.random.Generator,
    owner: Indices | None = None,
) -> Sequence[Indices]:
    """The samples of each device; devices are on a line."""
    places = np.stack([np.arange(devices) - 0.4 * devices, np.ones(devices)], 1)
    return partition.assign_samples(PartitionTask(labels, devices, generator, owner, places))
