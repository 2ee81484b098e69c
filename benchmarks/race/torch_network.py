"""The works' models as torch modules, for the simulators that train those."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from works import CLASSES, KERNEL, LocalData


def network(work: LocalData, pixels: int) -> nn.Sequential:
    """Return convolutions, if any, then fully connected layers; samples are [n, pixels]."""
    layers: list[nn.Module] = []
    width = pixels
    if work.channels:
        side = math.isqrt(pixels)
        layers.append(nn.Unflatten(1, (1, side, side)))
        for inputs, outputs in pairwise((1, *work.channels)):
            layers += [nn.Conv2d(inputs, outputs, KERNEL, padding=KERNEL // 2)]
            layers += [nn.MaxPool2d(2), nn.ReLU()]
        layers.append(nn.Flatten())
        width = work.channels[-1] * (side // 2 ** len(work.channels)) ** 2
    for outputs in work.hidden:
        layers += [nn.Linear(width, outputs), nn.ReLU()]
        width = outputs
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of samples that the model classifies rightly."""
    pairs = zip(x.split(1000), y.split(1000), strict=True)
    return sum(int((model(a).argmax(1) == b).sum()) for a, b in pairs) / len(y)
