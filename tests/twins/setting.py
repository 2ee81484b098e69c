"""What both sides of a twin test are given: cohort, local data, streams, and their minibatches in
NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from twins.network import Minibatch

from otafl.core.contracts import Batch, Cohort
from otafl.core.rng import Streams
from otafl.data.device_splits import pack
from otafl.data.training_data import TrainingData
from otafl.models.mlp import Mlp


def everyone(weight: Tensor) -> Cohort:
    """All K devices of all S trials; weight [S, K]."""
    trials, num_devices = weight.shape
    pair = torch.arange(trials * num_devices)
    zero = torch.zeros_like(pair)
    return Cohort(
        pair // num_devices,
        pair % num_devices,
        weight.flatten(),
        zero,
        zero,
        zero,
        torch.ones_like(pair, dtype=torch.bool),
        (num_devices,) * trials,
        num_devices,
    )


def mlp(widths: Sequence[int], bias_start: Literal["zero", "uniform"] = "zero") -> Mlp:
    """A network of the given widths, from inputs to classes. With biases at zero a unit whose
    inputs are all dead stands at the kink of its activation, where rounding decides."""
    config = Mlp.Settings(hidden=tuple(widths[1:-1]), bias_start=bias_start)
    return Mlp(config, (widths[0],), widths[-1])


def local_data(
    sizes: Sequence[Sequence[int]],
    inputs: int,
    classes: int,
    streams: Streams,
    batch_size: int,
    steps: int,
) -> TrainingData:
    """Devices of the given sizes [S][K] over 120 standard normal samples with random labels."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((120, inputs))
    y = generator.integers(0, classes, 120)
    parts = []
    for row in sizes:
        order = generator.permutation(120)
        parts.append(np.split(order, np.cumsum(row))[:-1])
    index, count = (torch.from_numpy(a) for a in pack(parts))
    return TrainingData(
        torch.from_numpy(x).to(streams.dtype),
        torch.from_numpy(y),
        index,
        count,
        classes,
        streams,
        batch_size,
        steps,
    )


def minibatch(batch: Batch, row: int) -> Minibatch:
    """One row of a stacked minibatch."""
    x = batch.x[row].double().numpy()
    weight = np.full(len(x), 1.0 / len(x))
    if batch.weight is not None:
        weight = batch.weight[row].double().numpy()
    return Minibatch(x, batch.y[row].numpy(), weight)


class Quiet:
    """Local work whose loss does not count: the sample weights are zero."""

    def __init__(self, cohort: Cohort, inputs: int, round: int = 0, steps: int = 1) -> None:
        self.cohort, self.inputs, self.round, self.steps = cohort, inputs, round, steps

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        weight = self.cohort.weight.new_zeros(self.cohort.num_rows, 1)
        label = torch.zeros_like(self.cohort.device)[:, None]
        return Batch(weight.new_zeros(self.cohort.num_rows, 1, self.inputs), label, weight)

    def load_full_batch(self) -> Batch:
        return self.draw_batch(0)

    def count_classes(self) -> Tensor:
        raise NotImplementedError("there are no samples to count")
