"""A fully connected ReLU network with cross-entropy, one sample at a time, in float64 NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Minibatch:
    """x [B, M], y [B], weight [B] of each sample in the mean (summing to one)."""

    x: Array
    y: NDArray[np.int64]
    weight: Array


def gradients(
    weights: list[Array],
    biases: list[Array],
    batch: Minibatch,
    present: NDArray[np.bool_] | None = None,
) -> tuple[float, list[Array], list[Array]]:
    """Mean loss and its dense gradients by every weight [M, N] (y = x W + b) and bias [N].

    present: [classes], whose scores count; those of other classes are 0.
    """
    loss = 0.0
    mask = np.ones(len(biases[-1])) if present is None else present.astype(float)
    by_weight = [np.zeros_like(w) for w in weights]
    by_bias = [np.zeros_like(b) for b in biases]
    for x, y, share in zip(batch.x, batch.y, batch.weight, strict=True):
        inputs = [x]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(np.maximum(inputs[-1] @ w + b, 0.0))
        scores = (inputs[-1] @ weights[-1] + biases[-1]) * mask
        top = scores.max()
        log_p = scores - top - np.log(np.exp(scores - top).sum())
        loss -= share * log_p[y]
        g = np.exp(log_p)
        g[y] -= 1.0
        g = g * mask
        for i in reversed(range(len(weights))):
            by_weight[i] += share * np.outer(inputs[i], g)
            by_bias[i] += share * g
            g = (weights[i] @ g) * (inputs[i] > 0)
    return float(loss), by_weight, by_bias
