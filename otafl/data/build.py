"""Build the devices' samples of a stack from its trials' sections `data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data.augment import make_augmentation
from otafl.data.base import DataSource
from otafl.data.client_samples import ClientSamples
from otafl.data.dataset import DataSet, Labelled
from otafl.data.device_splits import DeviceSplits, pack, partition_samples
from otafl.data.loading import load_cached
from otafl.data.training_data import TrainingData


@dataclass(frozen=True)
class Samples:
    """Hold the samples of S trials over K devices.

    client_test, client_validation: the devices' own, None where they have none. sample_share: [S,
    K], each device's number of training samples.
    """

    data: DataSet
    training_data: TrainingData
    client_test: ClientSamples | None
    client_validation: ClientSamples | None
    sample_share: Tensor


def build(
    sections: Sequence[DataSource],
    devices: int,
    training: Any,
    streams: Streams,
    whole: Streams | None = None,
) -> Samples:
    """Load the data set and deal it out over the devices.

    Parameters
    ----------
    sections : the section `data` of each of S trials, equal as none of its fields is stackable.
    devices : K.
    training : the section `training`; its batch_size and local_steps are used.
    streams : of the S trials.
    whole : of fewer trials, among the devices of equally many of these S the data set is dealt out
        together; each of them by itself if not given.

    Raises
    ------
    UserError : if the data set cannot be had, or not be dealt out.
    """
    source = sections[0]
    data = load_cached(source)
    dealt = streams if whole is None else whole
    everybody = devices * (streams.num_trials // dealt.num_trials)
    held = [
        part
        for trial in partition_samples(source, data, everybody, dealt)
        for part in trial.split(devices)
    ]
    if data.labels == "classes":
        data = replace(data, y_train=source.partition.relabel(data.y_train, everybody))
    index, count = (
        torch.from_numpy(array).to(streams.device)
        for array in pack([trial.train for trial in held])
    )
    local_data = TrainingData(
        torch.from_numpy(data.x_train).to(streams.device, streams.dtype),
        to_labels(data.y_train, streams),
        index,
        count,
        data.classes,
        streams,
        training.batch_size,
        training.local_steps,
        make_augmentation(source.augment, data, streams),
    )
    return Samples(
        data=data,
        training_data=local_data,
        client_test=_build_client_samples(data, held, local_data, "test"),
        client_validation=_build_client_samples(data, held, local_data, "validation"),
        sample_share=count.to(streams.dtype),
    )


def to_labels(y: Labelled, streams: Streams) -> Tensor:
    """Return labels on the device of the streams: values in their precision, others int64."""
    found = torch.from_numpy(y)
    return found.to(streams.device, streams.dtype if found.is_floating_point() else None)


def _build_client_samples(
    data: DataSet, splits: list[DeviceSplits], local: TrainingData, part: str
) -> ClientSamples | None:
    """Return the devices' own samples, None where they have none. part: test or validation."""
    parts = [getattr(trial, part) for trial in splits]
    sizes = np.stack([one.counts for one in parts])
    if not sizes.any():
        return None
    if not sizes.all():
        raise UserError(
            f"data.own_test: a device trains on classes of which there are no {part} samples; more "
            "samples or another data.partition would do"
        )
    if len(data.y_test):
        x, y = (torch.from_numpy(getattr(data, f"{name}_{part}")) for name in ("x", "y"))
        return ClientSamples.from_parts(x.to(local.x), y.to(local.y), parts, data.classes)
    return ClientSamples.from_parts(local.x, local.y, parts, data.classes)
