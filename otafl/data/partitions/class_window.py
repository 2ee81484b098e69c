"""Neighbouring classes on each device, in unequal shares, as in pFedMe and pFedBreD.

Device u has the classes u, u + 1, ... modulo the number of classes. It gets a few samples of each
and a log-normal share of the others. The authors' random generators and the order of their draws
are kept. The same seeds of NumPy and Python therefore give the same samples as their code.

The defaults are those of Fashion-MNIST, whose published split was not seeded throughout; split_seed
[0, 1] completes it. The others, all with data.test: per_device, are:

- MNIST: classes_per_device 3, split_seed [1, 1], and mislabel_first as published.
- CIFAR-10: 20 devices, classes_per_device 3, reserve 20, extra [300, 600], multiple [1, 1], times
  2, test_first, split_seed [1, 1].

References
----------
Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated
    Learning", section 6.1.
Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", section 5.1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import MAX_SIGMA, Partition, PartitionTask, SampleCounts

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class ClassWindow(Partition):
    """Partition in which the order of a device's samples decides which are test samples."""

    needs_classes: ClassVar[bool] = True

    is_shuffled: ClassVar[bool] = True

    name: Literal["class_window"] = "class_window"
    classes_per_device: int = Field(2, ge=1)
    """number of consecutive classes of a device"""
    first_samples: int = Field(10, ge=1)
    """number of samples that a device gets of each of its classes before the log-normal shares"""
    sigma: float = Field(2.0, ge=0, le=MAX_SIGMA)
    """standard deviation of the logarithm of the shares"""
    reserve: int = Field(1000, ge=0)
    """number of samples of each class that the log-normal shares leave out"""
    multiple: tuple[int, int] = (1, 10)
    """lowest and highest factor of a log-normal share, drawn uniformly"""
    extra: tuple[int, int] = (10, 200)
    """lowest and highest number of samples added to a share, drawn uniformly"""
    times: int = Field(1, ge=1)
    """factor of share and addition together"""
    test_first: bool = False
    """whether test samples are the first of a device's shuffled ones; by default the last"""
    mislabel_first: bool = False
    """whether the first samples of a device's classes get the labels 0, 1, ..., a fault of the
    published MNIST split"""
    split_seed: tuple[Seed, Seed] | None = None
    """seeds of NumPy's and of Python's generator, which give the same split in all trials; if not
    given, each trial draws its own"""

    def find_conflicts(self) -> Iterator[str]:
        for key in ("multiple", "extra"):
            low, high = getattr(self, key)
            if not 0 <= low <= high:
                yield f"{key}: got [{low}, {high}]; must be [low, high] with 0 <= low <= high"

    def check_counts(self, counts: SampleCounts) -> None:
        if self.classes_per_device > counts.classes:
            raise UserError(
                f"data.partition.classes_per_device: got {self.classes_per_device}; must be at "
                f"most {counts.classes}, the number of classes"
            )
        counts.check_samples_per_device(
            "first_samples", self.classes_per_device * self.first_samples
        )

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        self.check_counts(task.counts)
        devices = task.devices
        first, rest = self.split_seed or task.generator.integers(2**32, size=2)
        numpy_s, pythons = np.random.RandomState(int(first)), random.Random(int(rest))
        members, window, parts, given = self._assign_first_samples(task.labels, devices)
        # float [classes, devices, window]; only the first few devices' entries are read
        share = numpy_s.lognormal(0, self.sigma, (len(members), *window.shape))
        room = np.array([max(0, len(own) - self.reserve) for own in members])
        share = room[:, None, None] * share / share.sum((1, 2), keepdims=True)
        group = max(1, devices // len(members))
        for device, classes in enumerate(window):
            for j, c in enumerate(classes):
                extra = pythons.randint(*self.extra)
                multiple = _draw(pythons, *self.multiple)
                count = (int(share[c, device // group, j]) * multiple + extra) * self.times
                if given[c] + count < len(members[c]):  # otherwise the class is (nearly) used up
                    parts[device].extend(members[c][given[c] : given[c] + count])
                    given[c] += count
        for part in parts:
            pythons.shuffle(part)
            if self.test_first:
                part.reverse()
        return [np.array(part, np.int64) for part in parts]

    def relabel(self, y: Indices, devices: int) -> Indices:
        """Return the labels; with `mislabel_first`, j for the first samples of each j-th class."""
        if not self.mislabel_first:
            return y
        _, window, parts, _ = self._assign_first_samples(y, devices)
        borne = y.copy()
        place = np.repeat(np.arange(window.shape[1]), self.first_samples)
        for part in parts:
            borne[part] = place
        return borne

    def _assign_first_samples(
        self, labels: Indices, devices: int
    ) -> tuple[list[Indices], Indices, list[list[int]], Indices]:
        """Assign the first samples of each device, class by class.

        Returns
        -------
        tuple
            Samples of each class; classes of each device [devices, classes_per_device]; samples of
            each device; number of samples used of each class.
        """
        members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
        window = np.arange(devices)[:, None] + np.arange(self.classes_per_device)
        window %= len(members)
        given = np.zeros(len(members), np.int64)
        parts: list[list[int]] = []
        for classes in window:
            part: list[int] = []
            for c in classes:
                part.extend(members[c][given[c] : given[c] + self.first_samples])
                given[c] += self.first_samples
            parts.append(part)
        short = [c for c, own in enumerate(members) if given[c] > len(own)]
        if short:
            c = short[0]
            raise UserError(
                f"data.partition.first_samples: {devices} devices need {given[c]} samples of class "
                f"{c}, which has {len(members[c])}; use fewer first samples, a smaller "
                "classes_per_device or fewer devices"
            )
        return members, window, parts, given


def _draw(pythons: random.Random, low: int, high: int) -> int:
    """Draw a whole number from low to high.

    Without a choice nothing is drawn, as in the split of CIFAR-10, which has no factor.
    """
    return low if low == high else pythons.randint(low, high)
