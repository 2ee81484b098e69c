"""Equally many samples on each device, with class proportions from a symmetric Dirichlet.

Once a class is used up, a device draws from the other classes. The last devices must take the
samples that are left, so the devices choose in random order.

References
----------
Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.data.dataset import Indices
from otafl.data.partitions.base import Partition, PartitionTask, SampleCounts


class DirichletMix(Partition):
    """Partition with each device's samples in random order."""

    needs_classes: ClassVar[bool] = True

    is_shuffled: ClassVar[bool] = True

    name: Literal["dirichlet_mix"] = "dirichlet_mix"
    alpha: float = Field(0.5, gt=0)
    """concentration; the smaller, the more heterogeneous"""
    samples_per_device: int | None = Field(None, ge=1)
    """number of samples of a device; if not given, all samples, divided evenly"""

    def check_counts(self, counts: SampleCounts) -> None:
        counts.check_samples_per_device(
            "samples_per_device", self._get_samples_per_device(counts.samples, counts.devices)
        )

    def get_sizes(self, counts: SampleCounts) -> Sequence[int]:
        return [self._get_samples_per_device(counts.samples, counts.devices)] * counts.devices

    def _get_samples_per_device(self, samples: int, devices: int) -> int:
        return self.samples_per_device or samples // devices

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        self.check_counts(task.counts)
        devices, generator = task.devices, task.generator
        each = self._get_samples_per_device(len(task.labels), devices)
        members = task.shuffle_by_class()
        given = np.zeros(len(members), np.int64)
        stock = np.array([len(own) for own in members])
        parts: list[Indices] = [np.empty(0, np.int64)] * devices
        for device in generator.permutation(devices):
            count = _draw_class_counts(each, stock - given, self.alpha, generator)
            pieces = [
                own[start : start + n] for own, start, n in zip(members, given, count, strict=True)
            ]
            given += count
            parts[device] = generator.permutation(np.concatenate(pieces))
        return parts


def _draw_class_counts(
    num_samples: int, stock: Indices, alpha: float, generator: np.random.Generator
) -> Indices:
    """Draw the number of samples of each class that a device takes.

    Samples that a class lacks are drawn again from the others. Some components of a Dirichlet
    vector, scaled to sum to one, follow a Dirichlet distribution too.
    """
    taken = np.zeros_like(stock)
    mix = generator.dirichlet(np.full(len(stock), alpha))
    while taken.sum() < num_samples:
        left = stock - taken
        mix = np.where(left > 0, mix, 0.0)
        if mix.sum() == 0.0:  # the proportions of the others are too small for a float
            some = left > 0
            mix[some] = generator.dirichlet(np.full(some.sum(), alpha))
        wanted = generator.multinomial(num_samples - taken.sum(), mix / mix.sum())
        taken += np.minimum(wanted, left)
    return taken
