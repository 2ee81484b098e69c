"""Hold who has which samples, in two arrays: a population of a million needs no object a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from otafl.data.dataset import Indices


class SampleAssignment(Sequence[Indices]):
    """Hold the samples of K devices, as places in a data set.

    Parameters
    ----------
    sample_index : [n] int64, those of the first device, then those of the second, and so on.
    counts : [K] int64, how many each device has.
    """

    def __init__(self, sample_index: Indices, counts: Indices) -> None:
        self.sample_index, self.counts = sample_index, counts
        self.starts = np.cumsum(counts) - counts

    @staticmethod
    def from_parts(parts: Sequence[Indices]) -> SampleAssignment:
        """Return the parts of the devices, [K] arrays, side by side."""
        if isinstance(parts, SampleAssignment):
            return parts
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        return SampleAssignment(np.concatenate(parts), counts)

    @staticmethod
    def split_evenly(sample_index: Indices, num_devices: int) -> SampleAssignment:
        """Cut places into parts whose sizes differ by at most one, the larger ones first."""
        each, more = divmod(len(sample_index), num_devices)
        return SampleAssignment(
            sample_index, each + (np.arange(num_devices) < more).astype(np.int64)
        )

    @staticmethod
    def group_by_device(
        sample_index: Indices, device: Indices, num_devices: int
    ) -> SampleAssignment:
        """Give each place [n] to its device [n], in the order of the places."""
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
        """Return of each device the samples from its first [K] on, so many [K]."""
        return SampleAssignment(
            self.sample_index[concatenate_ranges(self.starts + first, counts)], counts
        )

    def split(self, devices: int) -> list[SampleAssignment]:
        """Return the parts of each so many devices."""
        if devices == len(self):
            return [self]
        firsts = range(0, len(self), devices)
        return [SampleAssignment.from_parts(self[first : first + devices]) for first in firsts]

    def pad(self, width: int) -> Indices:
        """Return the places as rows [K, width], padded with a device's first one."""
        column = np.arange(width)
        held = np.where(column < self.counts[:, None], column, 0)
        return self.sample_index[self.starts[:, None] + held]


def concatenate_ranges(starts: Indices, counts: Indices) -> Indices:
    """Return the whole numbers start, start + 1, ... of each span, so many each, one after the
    other."""
    ahead = np.cumsum(counts) - counts
    return np.repeat(starts - ahead, counts) + np.arange(counts.sum())
