"""Samples of all devices in two arrays, without an object for each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from otafl.data.dataset import Indices


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

    @overload
    def __getitem__(self, device: int) -> Indices: ...
    @overload
    def __getitem__(self, device: slice) -> list[Indices]: ...
    def __getitem__(self, device: int | slice) -> Indices | list[Indices]:
        if isinstance(device, slice):
            return [self[k] for k in range(*device.indices(len(self)))]
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
        if devices == len(self):
            return [self]
        firsts = range(0, len(self), devices)
        return [SampleAssignment.from_parts(self[first : first + devices]) for first in firsts]

    def pad(self, width: int) -> Indices:
        """Return a table [K, width] of the indices, padded with each device's first one."""
        column = np.arange(width)
        held = np.where(column < self.counts[:, None], column, 0)
        return self.sample_index[self.starts[:, None] + held]


def concatenate_ranges(starts: Indices, counts: Indices) -> Indices:
    """Concatenate the ranges start, start + 1, ... of given starts and counts."""
    ahead = np.cumsum(counts) - counts
    return np.repeat(starts - ahead, counts) + np.arange(counts.sum())
