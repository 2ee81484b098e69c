"""Neighbouring classes on each device, in unequal shares, as in pFedMe and pFedBreD.

Device u has the classes u, u + 1, ... modulo the number of classes. It gets 10 samples of each and
a log-normal share of the others. The authors' random generators and the order of their draws are
kept. The same seeds of NumPy and Python therefore give the same samples as their code, with
data.test: per_device and these settings:

- Fashion-MNIST: the defaults. The published split was not seeded throughout; split_seed [0, 1]
  completes it.
- MNIST: classes_per_device 3, split_seed [1, 1], without the wrong labels of the published split.
- CIFAR-10: 20 devices, published cifar10, classes_per_device 3, split_seed [1, 1].

References
----------
Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated
    Learning", section 6.1.
Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", section 5.1.
"""

from __future__ import annotations

import random
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import Partition, PartitionTask

Seed = Annotated[int, Field(ge=0, lt=2**32)]

_FIRST = 10
"""Samples that a device gets of each of its classes before the log-normal shares."""
_SIGMA = 2.0
"""Standard deviation of the logarithm of the shares."""


class ClassWindow(Partition):
    """Partition in which the order of a device's samples decides which are test samples."""

    needs_classes: ClassVar[bool] = True

    is_shuffled: ClassVar[bool] = True

    name: Literal["class_window"] = "class_window"
    classes_per_device: int = Field(2, ge=1)
    """number of consecutive classes of a device"""
    published: Literal["fashion_mnist", "cifar10"] = "fashion_mnist"
    """split whose sizes devices have. fashion_mnist, also that of MNIST: a share of all but 1,000
    samples of a class, times 1 to 10, and 10 to 200 samples; test samples are the last of a device.
    cifar10: twice the sum of a share of all but 20 samples and 300 to 600; test samples are the
    first"""
    split_seed: tuple[Seed, Seed] | None = None
    """seeds of NumPy's and of Python's generator, which give the same split in all trials; if not
    given, each trial draws its own"""

    def assign_samples(self, task: PartitionTask) -> list[Indices]:
        task.check_classes_per_device(self.classes_per_device)
        task.check_samples_per_device("classes_per_device", self.classes_per_device * _FIRST)
        devices, labels, is_cifar = task.devices, task.labels, self.published == "cifar10"
        first, rest = self.split_seed or task.generator.integers(2**32, size=2)
        numpy_s, pythons = np.random.RandomState(int(first)), random.Random(int(rest))
        # samples and number of used ones of each class; classes and samples of each device
        members = [np.flatnonzero(labels == c) for c in range(int(labels.max()) + 1)]
        given = np.zeros(len(members), np.int64)
        window = (np.arange(devices)[:, None] + np.arange(self.classes_per_device)) % len(members)
        parts: list[list[int]] = [[] for _ in range(devices)]
        for part, classes in zip(parts, window, strict=True):
            for c in classes:
                part.extend(members[c][given[c] : given[c] + _FIRST])
                given[c] += _FIRST
        for c, own in enumerate(members):
            if given[c] > len(own):
                raise UserError(
                    f"data.partition.classes_per_device: {devices} devices need {given[c]} samples "
                    f"of class {c}, which has {len(own)}; use a smaller number or fewer devices"
                )
        # float [classes, devices, window]; only the first few devices' entries are read
        share = numpy_s.lognormal(0, _SIGMA, (len(members), *window.shape))
        room = np.array([max(0, len(own) - (20 if is_cifar else 1000)) for own in members])
        share = room[:, None, None] * share / share.sum((1, 2), keepdims=True)
        group = max(1, devices // len(members))
        for device, classes in enumerate(window):
            for j, c in enumerate(classes):
                count = int(share[c, device // group, j])
                if is_cifar:
                    count = 2 * (count + pythons.randint(300, 600))
                else:
                    extra = pythons.randint(10, 200)
                    count = count * pythons.randint(1, 10) + extra
                if given[c] + count < len(members[c]):  # otherwise the class is (nearly) used up
                    parts[device].extend(members[c][given[c] : given[c] + count])
                    given[c] += count
        for part in parts:
            pythons.shuffle(part)
            if is_cifar:
                part.reverse()
        return [np.array(part, np.int64) for part in parts]
