"""Contract of a partition, and the samples of all devices in two arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.core.settings import Settings
from otafl.data.dataset import Indices
from otafl.losses.base import LABELS


class SampleAssignment(Sequence[Indices]):
    """Samples of K devices, as indices in a data set.

    Parameters
    ----------
    sample_index : ndarray, int64 [n]
        Indices of the samples of the first device, then of the second, and so on.
    counts : ndarray, int64 [K]
        Number of samples of each device.
    """

    def __init__(self, sample_index: Indices, counts: Indices) -> None:
        self.sample_index, self.counts = sample_index, counts
        self.starts = np.cumsum(counts) - counts

    @staticmethod
    def from_parts(parts: Sequence[Indices]) -> SampleAssignment:
        """Join the parts of K devices, one array each."""
        if isinstance(parts, SampleAssignment):
            return parts
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        return SampleAssignment(np.concatenate(parts), counts)

    @staticmethod
    def split_evenly(sample_index: Indices, num_devices: int) -> SampleAssignment:
        """Split indices into parts whose sizes differ by at most one, the larger ones first."""
        each, more = divmod(len(sample_index), num_devices)
        return SampleAssignment(
            sample_index, each + (np.arange(num_devices) < more).astype(np.int64)
        )

    @staticmethod
    def group_by_device(
        sample_index: Indices, device: Indices, num_devices: int
    ) -> SampleAssignment:
        """Assign each index [n] to its device [n], in the order of the indices."""
        order = np.argsort(device, kind="stable")
        return SampleAssignment(sample_index[order], np.bincount(device, minlength=num_devices))

    def __getitem__(self, device: int) -> Indices:  # type: ignore[override]
        if not -len(self) <= device < len(self):
            raise IndexError(f"device {device} of {len(self)}")
        start = self.starts[device]
        return self.sample_index[start : start + self.counts[device]]

    def __len__(self) -> int:
        """Return K."""
        return len(self.counts)

    def slice_parts(self, first: Indices, counts: Indices) -> SampleAssignment:
        """Return `counts` [K] samples of each device, from its sample `first` [K] on."""
        return SampleAssignment(
            self.sample_index[concatenate_ranges(self.starts + first, counts)], counts
        )

    def split(self, devices: int) -> list[SampleAssignment]:
        """Split into consecutive groups of so many devices."""
        counts = self.counts.reshape(-1, devices)
        samples = np.split(self.sample_index, np.cumsum(counts.sum(1))[:-1])
        return [SampleAssignment(*own) for own in zip(samples, counts, strict=True)]

    def pad(self, width: int) -> Indices:
        """Return a table [K, width] of the indices, padded with each device's first one."""
        column = np.arange(width)
        held = np.where(column < self.counts[:, None], column, 0)
        return self.sample_index[self.starts[:, None] + held]


def concatenate_ranges(starts: Indices, counts: Indices) -> Indices:
    """Concatenate the ranges start, start + 1, ... of given starts and counts."""
    ahead = np.cumsum(counts) - counts
    return np.repeat(starts - ahead, counts) + np.arange(counts.sum())


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
    positions : ndarray, float64 [K, 2], optional
        Positions of the devices in metres from the first server, if the partition needs them and
        the channel has them.

    Raises
    ------
    UserError
        If there are fewer samples than devices.
    """

    labels: Indices
    devices: int
    generator: np.random.Generator
    owner: Indices | None = None
    positions: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Raise UserError if there are fewer samples than devices."""
        if self.devices > len(self.labels):
            raise UserError(
                f"devices.count: {self.devices} devices need a training sample each, but there "
                f"are {len(self.labels)}; use fewer devices"
            )

    def check_samples_per_device(self, key: str, samples_per_device: int) -> None:
        """Raise UserError, for a key of the partition, if devices cannot have so many samples."""
        if self.devices * samples_per_device > len(self.labels):
            raise UserError(
                f"data.partition.{key}: {self.devices} devices x {samples_per_device} are more "
                f"than the {len(self.labels)} samples; use a smaller number or fewer devices"
            )

    def check_classes_per_device(self, classes_per_device: int) -> None:
        """Raise UserError if the samples have fewer classes than a device needs."""
        classes = len(np.unique(self.labels))
        if classes_per_device > classes:
            raise UserError(
                f"data.partition.classes_per_device: got {classes_per_device}; must be at most "
                f"{classes}, the number of classes"
            )

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

    needs_positions: ClassVar[bool] = False
    """Whether samples are assigned by the positions of the devices."""

    def find_misfits(self, labels: str | None) -> Iterator[str]:
        """Yield a sentence if it cannot assign samples with labels of a kind."""
        if self.needs_classes and labels not in (None, "classes"):
            name = getattr(self, "name", "")
            yield (
                f"data.partition: '{name}' assigns samples by their classes, but the data "
                f"set has {LABELS[labels]}; use iid, or natural where samples have users"
            )

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
