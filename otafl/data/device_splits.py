"""Training, test and validation samples of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_purpose
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Indices
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.base import SampleAssignment

PARTITION = declare_purpose("partition", __name__)


class DeviceSplits(NamedTuple):
    """Samples of a trial's devices, as indices in a data set.

    Parameters
    ----------
    train, test, validation : SampleAssignment
        Training samples, and each device's own test and validation samples.
    """

    train: SampleAssignment
    test: SampleAssignment
    validation: SampleAssignment

    def split(self, devices: int) -> list[DeviceSplits]:
        """Split into consecutive groups of so many devices."""
        groups = (one.split(devices) for one in self)
        return [DeviceSplits(*own) for own in zip(*groups, strict=True)]


def partition_samples(
    source: DataSource,
    data: DataSet,
    num_devices: int,
    streams: Streams,
    positions: Sequence[NDArray[np.float64]] | None = None,
) -> list[DeviceSplits]:
    """Partition the samples over the devices, for each trial.

    Parameters
    ----------
    source : DataSource
        Section `data`.
    data : DataSet
        The samples.
    num_devices : int
        Number of devices of a trial.
    streams : Streams
        Random streams of S trials.
    positions : sequence of ndarray [num_devices or more, 2], optional
        Positions of the devices in each trial.

    Returns
    -------
    list of DeviceSplits
        S partitions. Trials with the same random numbers share one.
    """
    for problem in source.partition.find_misfits(data.labels):
        raise UserError(problem)
    parts: dict[int, DeviceSplits] = {}
    rows = []
    seeds = streams.draw_seeds(PARTITION, 0)
    generators = streams.make_generators(PARTITION)
    for trial, (seed, generator) in enumerate(zip(seeds, generators, strict=True)):
        if seed not in parts:
            place = None if positions is None else positions[trial][:num_devices]
            deck = PartitionTask(data.class_labels, num_devices, generator, data.owner, place)
            of_device = source.partition.assign_samples(deck)
            if source.test == "per_device" and not source.partition.is_shuffled:
                of_device = [generator.permutation(part) for part in of_device]
            parts[seed] = _split_devices(source, data, SampleAssignment.from_parts(of_device))
        rows.append(parts[seed])
    return rows


def split_parts(
    parts: SampleAssignment, test_share: float, validation_share: float
) -> DeviceSplits:
    """Split each device's samples, in order, into training, validation and test samples.

    Parameters
    ----------
    parts : SampleAssignment
        Samples of the devices.
    test_share : float
        Share of the test samples.
    validation_share : float
        Share of the validation samples among the others.

    Returns
    -------
    DeviceSplits
        Splits of the devices.

    Raises
    ------
    UserError
        If a device has too few samples.

    Notes
    -----
    Of n samples, floor((1 - test_share) n) are for training and validation, as in the split of
    pFedBreD. The last `validation_share` of these are for validation.
    """
    kept = ((1.0 - test_share) * parts.counts).astype(np.int64)
    held = np.rint(validation_share * kept).astype(np.int64)
    trains, tests = kept - held, parts.counts - kept
    short = (tests < 1) | (trains < 1) | ((held < 1) & (validation_share > 0))
    if short.any():
        k = int(short.argmax())
        raise UserError(
            f"data.test: per_device splits the {parts.counts[k]} samples of device {k} into "
            f"{trains[k]} for training, {held[k]} for validation and {tests[k]} for testing; "
            "each needs at least one: use fewer devices, or another partition or data.test_share"
        )
    return DeviceSplits(
        parts.slice_parts(np.zeros_like(kept), trains),
        parts.slice_parts(kept, tests),
        parts.slice_parts(trains, held),
    )


def pack(parts: Sequence[Sequence[Indices]]) -> tuple[Indices, Indices]:
    """Pack parts of S trials and K devices into tables.

    Parameters
    ----------
    parts : Sequence of Sequence of ndarray, int64
        Indices of the samples of each device, for each trial.

    Returns
    -------
    index : ndarray, int64 [S, K, n_max]
        Indices of each device's samples, padded with its first sample.
    count : ndarray, int64 [S, K]
        Number of samples of each device.
    """
    assigned = [SampleAssignment.from_parts(trial) for trial in parts]
    count = np.stack([trial.counts for trial in assigned])
    width = int(count.max())
    return np.stack([trial.pad(width) for trial in assigned]), count


def count_classes(y: Tensor, counts: Tensor, classes: int) -> Tensor:
    """Count the classes of the labels of each row.

    Parameters
    ----------
    y : Tensor, int64 [n, m]
        Labels.
    counts : Tensor, int64 [n]
        Number of labels of each row, the first ones; the others are padding.
    classes : int
        Number of classes.

    Returns
    -------
    Tensor, int64 [n, classes]
        Number of labels of each class.
    """
    held = torch.arange(y.shape[1], device=y.device) < counts[:, None]
    row = torch.arange(len(y), device=y.device)[:, None]
    key = (row * classes + y)[held]
    return torch.bincount(key, minlength=len(y) * classes).view(-1, classes)


def _split_devices(source: DataSource, data: DataSet, parts: SampleAssignment) -> DeviceSplits:
    """Return the training, test and validation samples of devices with these training samples."""
    if source.test == "per_device":
        return split_parts(parts, source.test_share, source.validation)
    if not source.own_test:
        nothing = SampleAssignment(parts.sample_index[:0], np.zeros_like(parts.counts))
        return DeviceSplits(parts, nothing, nothing)
    by_user = source.partition.groups_users and data.owner is not None
    if data.labels != "classes" and (not by_user or len(data.y_validation)):
        raise UserError(
            "data.own_test: samples have no classes by which devices get test and validation "
            "samples of their own; use data.test: per_device"
        )
    of, others = data.y_train, data.y_test
    if by_user:
        assert data.owner is not None
        if data.owner_test is None:
            raise UserError("data.own_test: training samples have users; give owner_test too")
        of, others = data.owner, data.owner_test
    pairs = {"test": (of, others), "validation": (data.y_train, data.y_validation)}
    own: dict[str, SampleAssignment] = {}
    for name, (groups, pool) in pairs.items():
        selected = [np.flatnonzero(np.isin(pool, np.unique(groups[part]))) for part in parts]
        own[name] = SampleAssignment.from_parts(selected)
        if len(pool) and not own[name].counts.all():
            device = int(own[name].counts.argmin())
            values = ", ".join(map(str, np.unique(groups[parts[device]])))
            kind = "users" if groups is data.owner else "classes"
            raise UserError(
                f"data.own_test: there are no {name} samples of the {kind} of device {device} "
                f"({values}); use more samples or another data.partition"
            )
    return DeviceSplits(parts, **own)


@dataclass(frozen=True)
class ClientSamples:
    """Samples by device, for S trials over K devices.

    Parameters
    ----------
    x : Tensor, [n, *shape]
        Samples of all devices.
    y : Tensor
        Their labels, int64 [n] of classes, [n, outputs] of values or [n, length] of tokens.
    index : Tensor, int64 [S * K, m]
        Indices of each device's samples in x, padded to the largest number m.
    count : Tensor, int64 [S * K]
        Number of samples of each device.
    trial : Tensor, int64 [S * K]
        Trial of each device.
    classes : int
        Number of classes of the data set.
    is_common : bool
        Whether every device has all samples, in their order.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    count: Tensor
    trial: Tensor
    classes: int
    is_common: bool = False

    @staticmethod
    def from_parts(
        x: Tensor, y: Tensor, parts: Sequence[Sequence[Indices]], classes: int
    ) -> ClientSamples:
        """Return the samples of parts [S][K], which are indices in x and never empty."""
        index, count = (torch.from_numpy(array).to(y.device) for array in pack(parts))
        trials, devices = count.shape
        trial = torch.arange(trials, device=y.device).repeat_interleave(devices)
        return ClientSamples(x, y, index.flatten(0, 1), count.flatten(), trial, classes)

    @staticmethod
    def share(x: Tensor, y: Tensor, trial: Tensor, classes: int) -> ClientSamples:
        """Return samples that all devices of trials [n] have."""
        index = torch.arange(len(y), device=y.device).expand(len(trial), -1)
        return ClientSamples(x, y, index, torch.full_like(trial, len(y)), trial, classes, True)

    def _list_trials(self) -> list[Tensor]:
        """Return the indices of the samples of all devices of each trial together, int64 [m]."""
        trials = int(self.trial[-1]) + 1
        held = torch.arange(self.index.shape[1], device=self.y.device) < self.count[:, None]
        parts = zip(self.index.chunk(trials), held.chunk(trials), strict=True)
        return [index[mask] for index, mask in parts]

    def list_trial_labels(self) -> list[NDArray[Any]]:
        """Return the labels of all devices of each trial together, on the host."""
        return [self.y[index].cpu().numpy() for index in self._list_trials()]

    def pool_devices(self) -> ClientSamples:
        """Return a copy in which each device has the samples of all devices of its trial."""
        parts = [[index.cpu().numpy()] for index in self._list_trials()]
        index, count = (torch.from_numpy(array).to(self.y.device) for array in pack(parts))
        return ClientSamples(
            self.x, self.y, index[self.trial, 0], count[self.trial, 0], self.trial, self.classes
        )

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes."""
        return self.y.dim() == 1

    def count_classes(self) -> Tensor:
        """Count the samples of each class by device, [S * K, classes] int64."""
        return count_classes(self.y[self.index], self.count, self.classes)
