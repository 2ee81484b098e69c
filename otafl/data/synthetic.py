"""Synthetic samples with the declared shape of a data set, where only shapes matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from otafl.core.rng import Streams
from otafl.data.base import DataSource
from otafl.data.build import Samples, build_training_data
from otafl.data.dataset import DataSet, Labelled

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
    generator = np.random.default_rng(0)
    x = generator.random((SAMPLES_PER_CLASS * classes, *shape), np.float32)
    y: Labelled = np.arange(len(x)) % classes
    if source.labels == "values":
        y = generator.random((len(x), classes), np.float32)
    elif source.labels == "tokens":
        x = np.floor(classes * x)
        y = x.astype(np.int64)
    data = DataSet(x, y, x, y, classes)
    count = torch.full((streams.num_trials, devices), len(y), device=streams.device)
    every = torch.arange(len(y), device=streams.device).expand(streams.num_trials, devices, -1)
    local = build_training_data(source, data, every, count, training, streams)
    return Samples(data, local, None, None, count.to(streams.dtype))
