"""Synthetic samples with the declared shape of a data set, where only shapes matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from otafl.core.rng import Streams
from otafl.data.augment import make_augmentation
from otafl.data.base import DataSource
from otafl.data.build import Samples
from otafl.data.dataset import DataSet
from otafl.data.training_data import TrainingData

SAMPLES_PER_CLASS = 2
"""Number of samples of each class, the same ones on all devices."""


def build_synthetic(
    sections: Sequence[DataSource],
    devices: int,
    training: Any,
    streams: Streams,
    whole: Streams | None = None,
) -> Samples:
    """Return synthetic samples by device, with the arguments of `otafl.data.build`."""
    source = sections[0]
    shape, classes = source.input_shape, source.classes
    assert shape is not None
    assert classes is not None
    y = np.arange(SAMPLES_PER_CLASS * classes) % classes
    x = np.random.default_rng(0).random((len(y), *shape), np.float32)
    data = DataSet(x, y, x, y, classes)
    count = torch.full((streams.num_trials, devices), len(y), device=streams.device)
    every = torch.arange(len(y), device=streams.device).expand(streams.num_trials, devices, -1)
    local = TrainingData(
        torch.from_numpy(x).to(streams.device, streams.dtype),
        torch.from_numpy(y).to(streams.device),
        every,
        count,
        classes,
        streams,
        training.batch_size,
        training.local_steps,
        make_augmentation(source.augment, data, streams),
    )
    return Samples(data, local, None, None, count.to(streams.dtype))
