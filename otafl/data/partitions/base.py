"""Contract of a partition, and functions that several partitions share."""

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
    """Numbers that are known before the samples to partition are read.

    Parameters
    ----------
    samples : int
        Number of training samples.
    devices : int
        Number of devices K.
    classes : int
        Number of classes.
    has_users : bool
        Whether samples have users.
    users : int, optional
        Number of users, None if it is unknown.
    """

    samples: int
    devices: int
    classes: int
    has_users: bool
    users: int | None = None

    def check(self) -> None:
        """Raise UserError if there are fewer samples than devices."""
        if self.devices > self.samples:
            raise UserError(
                f"devices.count: {self.devices} devices need a training sample each, but there "
                f"are {self.samples}; use fewer devices"
            )

    def check_samples_per_device(self, key: str, samples_per_device: int) -> None:
        """Raise UserError, for a key of the partition, if devices cannot have so many samples."""
        if self.devices * samples_per_device > self.samples:
            raise UserError(
                f"data.partition.{key}: {self.devices} devices x {samples_per_device} are more "
                f"than the {self.samples} samples; use a smaller number or fewer devices"
            )


@dataclass(frozen=True)
class PartitionTask:
    """Samples to partition in a trial.

    Parameters
    ----------
    labels : ndarray, int64 [n]
        Labels of the samples, n at least `devices`; all 0 if labels are no classes.
    devices : int
        Number of devices K.
    generator : numpy.random.Generator
        Random generator of the trial.
    owner : ndarray, int64 [n], optional
        User of each sample, if the data have users.

    Raises
    ------
    UserError
        If there are fewer samples than devices.
    """

    labels: Indices
    devices: int
    generator: np.random.Generator
    owner: Indices | None = None

    def __post_init__(self) -> None:
        """Raise UserError if there are fewer samples than devices."""
        self.counts.check()

    @property
    def counts(self) -> SampleCounts:
        """Numbers of samples, devices and classes."""
        classes = len(np.unique(self.labels))
        users = None if self.owner is None else len(np.unique(self.owner))
        return SampleCounts(len(self.labels), self.devices, classes, users is not None, users)

    def draw_permutation(self) -> Indices:
        """Draw a random order of all samples."""
        return self.generator.permutation(len(self.labels))

    def shuffle_by_class(self) -> list[Indices]:
        """Return the samples of each class that occurs, shuffled."""
        classes = np.unique(self.labels)
        return [self.generator.permutation(np.flatnonzero(self.labels == c)) for c in classes]


class Partition(Settings):
    """Partition of samples over the devices, drawn for each trial.

    A partition is its settings, the section `data.partition` of a scenario.
    """

    is_shuffled: ClassVar[bool] = False
    """Whether the order of a device's samples is random, so that they can be split as they are."""

    groups_users: ClassVar[bool] = False
    """Whether a device is one or more users, and its own test samples are theirs."""

    needs_classes: ClassVar[bool] = False
    """Whether samples are assigned by their classes."""

    def find_misfits(self, labels: str | None) -> Iterator[str]:
        """Yield a sentence if it cannot assign samples with labels of a kind."""
        if self.needs_classes and labels not in (None, "classes"):
            name = getattr(self, "name", "")
            yield (
                f"data.partition: '{name}' assigns samples by their classes, but the data "
                f"set has {LABELS[labels]}; use iid, or natural where samples have users"
            )

    def check_counts(self, counts: SampleCounts) -> None:
        """Raise UserError if the numbers alone show that the samples cannot be partitioned so."""

    def get_sizes(self, counts: SampleCounts) -> Sequence[int]:
        """Return the number of samples of each device; nothing if a random draw decides it."""
        return ()

    @abstractmethod
    def assign_samples(self, task: PartitionTask) -> Sequence[Indices]:
        """Assign the samples to the devices.

        Parameters
        ----------
        task : PartitionTask
            Samples of a trial.

        Returns
        -------
        Sequence of ndarray, int64
            Indices of the samples of each of the K devices, disjoint and never empty. A sample can
            be left out. A partition without an array for each device returns a `SampleAssignment`.

        Raises
        ------
        UserError
            If there are too few samples, classes or users.
        """

    def relabel(self, y: Indices, devices: int) -> Indices:
        """Return the labels [n] that the samples have after the partition, equal for all trials."""
        return y


MAX_SIGMA = 20.0
"""Largest deviation of a logarithm for which shares of a sum can be computed in float64."""


def split_lognormal(
    members: Indices, num_parts: int, sigma: float, min_size: int, generator: np.random.Generator
) -> SampleAssignment:
    """Split samples, in order, into parts of log-normal sizes.

    Parameters
    ----------
    members : ndarray, int64 [n]
        Samples.
    num_parts : int
        Number of parts.
    sigma : float
        Deviation of the logarithm of the shares; 0 splits evenly.
    min_size : int
        Smallest part: each gets so many samples and a log-normal share of the others.
    generator : numpy.random.Generator
        Random generator.

    Returns
    -------
    SampleAssignment
        The parts.
    """
    if sigma == 0:
        return SampleAssignment.split_evenly(members, num_parts)
    share = generator.lognormal(0.0, sigma, num_parts)
    free = len(members) - min_size * num_parts
    ends = np.rint(np.cumsum(share) / share.sum() * free).astype(np.int64)
    cuts = (ends + min_size * np.arange(1, num_parts + 1))[:-1]
    return SampleAssignment(members, np.diff(cuts, prepend=0, append=len(members)))
