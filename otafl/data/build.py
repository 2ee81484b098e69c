"""Samples of a stack's devices, from the sections `data` of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.rng import Streams
from otafl.data.augment import Augmentation
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.device_splits import ClientSamples, DeviceSplits, pack, partition_samples
from otafl.data.loading import load_cached
from otafl.data.training_data import TrainingData


@dataclass(frozen=True)
class Samples:
    """Samples of S trials over K devices.

    Parameters
    ----------
    data : DataSet
        Samples of all devices.
    training_data : TrainingData
        Training samples by device.
    client_test, client_validation : ClientSamples, optional
        Test and validation samples by device, None without them.
    sample_share : Tensor, [S, K]
        Number of training samples of each device.
    """

    data: DataSet
    training_data: TrainingData
    client_test: ClientSamples | None
    client_validation: ClientSamples | None
    sample_share: Tensor


def build(
    source: DataSource,
    devices: int,
    training: Any,
    streams: Streams,
    shared: Streams | None = None,
    positions: Sequence[np.ndarray] | None = None,
) -> Samples:
    """Load the data set and partition it over the devices.

    Parameters
    ----------
    source : DataSource
        Section `data` of the S trials, in which no field is stackable.
    devices : int
        Number of devices K.
    training : TrainingSettings
        Section `training`, of which `batch_size`, `local_steps` and `local_epochs` are used.
    streams : Streams
        Random streams of the S trials.
    shared : Streams, optional
        Streams of fewer trials, if the devices of several consecutive trials share one partition,
        as the servers of a topology do.
    positions : sequence of ndarray [n, 2], optional
        Positions of all devices in each of the topology's trials.

    Returns
    -------
    Samples
        Samples by device.

    Raises
    ------
    UserError
        If the data set cannot be read or partitioned.
    """
    data = load_cached(source)
    assigned_streams = streams if shared is None else shared
    num_devices = devices * (streams.num_trials // assigned_streams.num_trials)
    if positions is not None:
        places = np.reshape(positions, (-1, num_devices, 2))
        positions = list(places.repeat(assigned_streams.num_trials // len(places), 0))
    held = [
        part
        for trial in partition_samples(source, data, num_devices, assigned_streams, positions)
        for part in trial.split(devices)
    ]
    index, count = (
        torch.from_numpy(array).to(streams.device)
        for array in pack([trial.train for trial in held])
    )
    y = torch.from_numpy(data.y_train)
    local_data = TrainingData(
        torch.from_numpy(data.x_train).to(streams.device, streams.dtype),
        y.to(streams.device, streams.dtype if y.is_floating_point() else None),
        index,
        count,
        data.classes,
        streams,
        training.batch_size,
        training.local_steps,
        None if source.augment is None else Augmentation(source.augment, data, streams),
        training.local_epochs,
    )
    return Samples(
        data=data,
        training_data=local_data,
        client_test=_build_client_samples(data, held, local_data, "test"),
        client_validation=_build_client_samples(data, held, local_data, "validation"),
        sample_share=count.to(streams.dtype),
    )


def _build_client_samples(
    data: DataSet, splits: list[DeviceSplits], local: TrainingData, part: str
) -> ClientSamples | None:
    """Return the samples of `part`, test or validation, by device; None without them."""
    parts = [getattr(trial, part) for trial in splits]
    if not any(one.counts.any() for one in parts):
        return None
    if len(data.y_test):
        x, y = (torch.from_numpy(getattr(data, f"{name}_{part}")) for name in ("x", "y"))
        return ClientSamples.from_parts(x.to(local.x), y.to(local.y), parts, data.classes)
    return ClientSamples.from_parts(local.x, local.y, parts, data.classes)
