"""A plain twin of HeteroFL (Diao, Ding, Tarokh 2021) and FedRolex (Alam et al. 2022) on a fully
connected ReLU network: loops over devices, steps, samples and single weights, one trial, float64.
Minibatches are arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from twins.network import Array, Minibatch, gradients

Index = list[int]


@dataclass
class Device:
    """widths: hidden channels that its model keeps in each layer. batches: of each local step.
    present: whether it has samples of a class."""

    widths: list[int]
    batches: list[Minibatch]
    present: NDArray[np.bool_]


@dataclass
class Settings:
    step: float
    momentum: float = 0.0
    decay: float = 0.0
    clip: float | None = None
    masked: bool = True


def one_round(
    weights: list[Array],
    biases: list[Array],
    devices: list[Device],
    settings: Settings,
    offset: int = 0,
) -> tuple[list[Array], list[Array], list[float]]:
    """The next model y = x W + b, and each device's mean loss. offset: the first channel of all
    windows; 0 in HeteroFL, the round in FedRolex."""
    total = [np.zeros_like(block) for block in weights + biases]
    count = [np.zeros_like(block) for block in weights + biases]
    layers, losses = len(weights), []
    for device in devices:
        kept = windows(weights, device.widths, offset)
        w = [weights[i][np.ix_(kept[i], kept[i + 1])].copy() for i in range(layers)]
        b = [biases[i][kept[i + 1]].copy() for i in range(layers)]
        losses.append(train(w, b, device, settings))
        for i in range(layers):
            for column, to in enumerate(kept[i + 1]):
                if i == layers - 1 and settings.masked and not device.present[to]:
                    continue
                total[layers + i][to] += b[i][column]
                count[layers + i][to] += 1.0
                for row, source in enumerate(kept[i]):
                    total[i][source, to] += w[i][row, column]
                    count[i][source, to] += 1.0
    new = [
        np.where(n > 0, t / np.maximum(n, 1.0), old)
        for t, n, old in zip(total, count, weights + biases, strict=True)
    ]
    return new[:layers], new[layers:], losses


def windows(weights: list[Array], widths: list[int], offset: int) -> list[Index]:
    """The units of inputs, hidden layers and classes that a model of these widths has."""
    sides = [weights[0].shape[0], *(w.shape[1] for w in weights)]
    kept: list[Index] = [list(range(sides[0]))]
    for whole, width in zip(sides[1:-1], widths, strict=True):
        first = offset if width < whole else 0
        kept.append([(first + i) % whole for i in range(width)])
    return [*kept, list(range(sides[-1]))]


def train(w: list[Array], b: list[Array], device: Device, settings: Settings) -> float:
    """Local SGD with momentum, in place; the mean loss."""
    velocity = [np.zeros_like(block) for block in w + b]
    total = 0.0
    for batch in device.batches:
        present = device.present if settings.masked else None
        loss, by_w, by_b = gradients(w, b, batch, present)
        total += loss
        params = w + b
        grads = [g + settings.decay * p for g, p in zip(by_w + by_b, params, strict=True)]
        if settings.clip is not None:
            length = np.sqrt(sum(float((g * g).sum()) for g in grads))
            grads = [g * min(1.0, settings.clip / length) for g in grads]
        velocity = [settings.momentum * v + g for v, g in zip(velocity, grads, strict=True)]
        for p, v in zip(params, velocity, strict=True):
            p -= settings.step * v
    return total / len(device.batches)
