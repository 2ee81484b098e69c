"""Define the contract of a partition, and what several partitions share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otafl.core.errors import UserError
from otafl.core.settings import Settings
from otafl.data.dataset import Indices
from otafl.data.sample_assignment import SampleAssignment
from otafl.losses.base import LABELS


@dataclass(frozen=True)
class SampleCounts:
    """Say how much there is to deal out, which is known before the samples are.

    Parameters
    ----------
    samples : for training.
    devices : K.
    classes : of the data set.
    has_users : whether samples have users.
    """

    samples: int
    devices: int
    classes: int
    has_users: bool

    def check(self) -> None:
        """Raise UserError where there is no sample for each device."""
        if self.devices > self.samples:
            raise UserError(
                f"devices.count: {self.devices} devices need a training sample each and there are "
                f"{self.samples}; use fewer devices"
            )

    def check_samples_per_device(self, key: str, samples_per_device: int) -> None:
        """Raise UserError, which names the partition's key, where devices cannot have so many of
        the samples each."""
        if self.devices * samples_per_device > self.samples:
            raise UserError(
                f"data.partition.{key}: {self.devices} devices x {samples_per_device} are more "
                f"than the {self.samples} samples; a smaller number or fewer devices would do"
            )


@dataclass(frozen=True)
class PartitionTask:
    """Hold the samples to deal out in a trial.

    labels: [n] int64, n at least `devices`, which is K; all 0 where labels are no classes.
    generator: the trial's. owner: [n] int64, the user that each sample is from, where the data have
    users.
    """

    labels: Indices
    devices: int
    generator: np.random.Generator
    owner: Indices | None = None

    def __post_init__(self) -> None:
        """Raise UserError where there is no sample for each device."""
        self.counts.check()

    @property
    def counts(self) -> SampleCounts:
        """Say how much there is to deal out."""
        classes = len(np.unique(self.labels))
        return SampleCounts(len(self.labels), self.devices, classes, self.owner is not None)

    def draw_permutation(self) -> Indices:
        """Draw an order of all samples."""
        return self.generator.permutation(len(self.labels))

    def shuffle_by_class(self) -> list[Indices]:
        """Return the samples of each class that occurs, shuffled."""
        classes = np.unique(self.labels)
        return [self.generator.permutation(np.flatnonzero(self.labels == c)) for c in classes]


class Partition(Settings):
    """Split samples over the devices, once for each trial. A partition is its settings, the section
    `data.partition` of a scenario."""

    is_shuffled: ClassVar[bool] = False
    """A device's samples come in an order that may be cut into training and test samples as it
    is."""

    groups_users: ClassVar[bool] = False
    """A device is users of the data set: its own test samples are theirs, not those of its
    classes."""

    needs_classes: ClassVar[bool] = False
    """Samples are dealt out by their classes."""

    def find_misfits(self, labels: str | None) -> Iterator[str]:
        """Yield a sentence where it cannot deal out samples with labels of a kind."""
        if self.needs_classes and labels not in (None, "classes"):
            yield (
                f"data.partition: '{self.name}' deals samples out by their classes, but the data "
                f"set has {LABELS[labels]}; use iid, or natural where samples have users"
            )

    def check_counts(self, counts: SampleCounts) -> None:
        """Raise UserError where the counts alone show that the samples cannot be dealt out so."""

    def get_sizes(self, counts: SampleCounts) -> Sequence[int]:
        """Return the numbers of samples that devices get, where no draw decides them."""
        return ()

    @abstractmethod
    def assign_samples(self, task: PartitionTask) -> Sequence[Indices]:
        """Return the samples of each device: disjoint, none empty. A sample can be left to no
        device. A partition that makes no array for each device returns them as `SampleAssignment`.

        Raises
        ------
        UserError : if there are too few samples, classes or users for what is asked.
        """

    def relabel(self, y: Indices, devices: int) -> Indices:
        """Return the labels [n] that samples of labels y [n] bear once they are dealt out, the same
        for every trial."""
        return y


MAX_SIGMA = 20.0
"""Deviation of a logarithm up to which shares of a sum can be computed in float64."""


def split_lognormal(
    members: Indices, num_parts: int, sigma: float, min_size: int, generator: np.random.Generator
) -> SampleAssignment:
    """Return the members in order, cut into parts of `min_size` and a log-normal share of the
    others; evenly if sigma is 0."""
    if sigma == 0:
        return SampleAssignment.split_evenly(members, num_parts)
    share = generator.lognormal(0.0, sigma, num_parts)
    free = len(members) - min_size * num_parts
    ends = np.rint(np.cumsum(share) / share.sum() * free).astype(np.int64)
    cuts = (ends + min_size * np.arange(1, num_parts + 1))[:-1]
    return SampleAssignment(members, np.diff(cuts, prepend=0, append=len(members)))
