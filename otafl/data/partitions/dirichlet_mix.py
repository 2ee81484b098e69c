"""Give devices equally many samples, each with a class mix from a symmetric Dirichlet.

Once a class is used up, a device draws from the classes that are left. Devices choose in random
order, since those that come last must take what is left.

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
    """Give each device its samples in random order."""

    needs_classes: ClassVar[bool] = True

    is_shuffled: ClassVar[bool] = True

    name: Literal["dirichlet_mix"] = "dirichlet_mix"
    alpha: float = Field(0.5, gt=0)
    """concentration; small is heterogeneous"""
    samples_per_device: int | None = Field(None, ge=1)
    """samples a device holds; by default all, dealt out evenly"""

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
    """Draw how many samples of each class a device takes. What a class cannot give is drawn again
    from the others: some parts of a Dirichlet, made to sum to one, are a Dirichlet of their own."""
    taken = np.zeros_like(stock)
    mix = generator.dirichlet(np.full(len(stock), alpha))
    while taken.sum() < num_samples:
        left = stock - taken
        mix = np.where(left > 0, mix, 0.0)
        if mix.sum() == 0.0:  # the others' parts are too small for a float
            some = left > 0
            mix[some] = generator.dirichlet(np.full(some.sum(), alpha))
        wanted = generator.multinomial(num_samples - taken.sum(), mix / mix.sum())
        taken += np.minimum(wanted, left)
    return taken
