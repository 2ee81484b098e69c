"""The works' models as torch modules, for the simulators that train those."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from works import CLASSES, KERNEL, LocalData


def network(work: LocalData, pixels: int) -> nn.Sequential:
    """Return convolutions, if any, then fully connected layers; samples are [n, pixels]."""
    layers: list[nn.Module] = []
    width = pixels
    if work.channels:
        side = math.isqrt(pixels // work.planes)
        padding = KERNEL // 2 if work.padding == "same" else 0
        layers.append(nn.Unflatten(1, (work.planes, side, side)))
        for inputs, outputs in pairwise((work.planes, *work.channels)):
            layers += [nn.Conv2d(inputs, outputs, KERNEL, padding=padding)]
            layers += [nn.MaxPool2d(2), nn.ReLU()]
            side = (side + 2 * padding - KERNEL + 1) // 2
        layers.append(nn.Flatten())
        width = work.channels[-1] * side**2
    for outputs in work.hidden:
        layers += [nn.Linear(width, outputs), nn.ReLU()]
        width = outputs
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def load_batches(
    work: LocalData, x: Tensor, y: Tensor, generator: torch.Generator | None = None
) -> DataLoader:
    """Return the loader of a device's samples: an epoch of them, or the steps of a round.

    It gathers a batch at once, which is faster than the loader's own way, one by one.
    """
    data = TensorDataset(x, y)
    few = {} if work.epochs else {"replacement": True, "num_samples": work.steps * work.batch}
    order = BatchSampler(RandomSampler(data, generator=generator, **few), work.batch, False)
    return DataLoader(data, batch_size=None, sampler=order)


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of samples that the model classifies rightly."""
    pairs = zip(x.split(1000), y.split(1000), strict=True)
    return sum(int((model(a).argmax(1) == b).sum()) for a, b in pairs) / len(y)
