"""Compiled SGD of softmax regression on the CPU, all local steps of a row in one pass.

Tensor operations gather each minibatch, and take some 25 calls for each step. This loop reads the
samples where they lie, and keeps the model of a row in the processor's cache until its last step.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiled_module import compile_loop
from otafl.core.contracts import Samples

_compile = functools.partial(compile_loop, fastmath=frozenset({"contract", "nsz", "reassoc"}))


def write_increments(samples: Samples, received: Tensor, rate: Tensor, increment: Tensor) -> Tensor:
    """Train the rows by SGD with the cross-entropy, and write what they send.

    Parameters
    ----------
    samples : Samples
        Minibatches of T steps of B samples with M features, and their labels.
    received : Tensor, float [n, M C + C]
        Weight [M, C] and bias [C] from which each row starts, side by side. Rows may share their
        memory.
    rate : Tensor, float [n]
        Step size.
    increment : Tensor, float [n, M C + C]
        Result, trained less received parameters.

    Returns
    -------
    Tensor, float [n]
        Mean loss over the steps.
    """
    start = received if received.stride(0) else received[:1]
    weight, loss = samples.weight, torch.empty_like(rate)
    if weight is None:
        width = samples.rows.shape[2]
        weight = rate.new_full((1, width), 1.0 / width)
    given = samples.x, samples.y, samples.rows, weight, start, rate
    _train(*(one.contiguous().numpy() for one in given), increment.numpy(), loss.numpy())
    return loss


@_compile
def _score(x: Any, sample: Any, weight: Any, z: Any) -> None:
    """Write the scores z [C, B] without the bias, of two classes and four samples at a time."""
    none = weight.dtype.type(0)
    for b in range(0, len(sample), 4):
        b0, b1, b2, b3 = sample[b], sample[b + 1], sample[b + 2], sample[b + 3]
        for c in range(0, len(weight), 2):
            u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = none
            for m in range(weight.shape[1]):
                u, v = weight[c, m], weight[c + 1, m]
                x0, x1, x2, x3 = x[b0, m], x[b1, m], x[b2, m], x[b3, m]
                u0 += u * x0
                u1 += u * x1
                u2 += u * x2
                u3 += u * x3
                v0 += v * x0
                v1 += v * x1
                v2 += v * x2
                v3 += v * x3
            z[c, b], z[c, b + 1], z[c, b + 2], z[c, b + 3] = u0, u1, u2, u3
            z[c + 1, b], z[c + 1, b + 1], z[c + 1, b + 2], z[c + 1, b + 3] = v0, v1, v2, v3


@_compile
def _differentiate(z: Any, bias: Any, label: Any, share: Any, rate: float) -> float:
    """Replace the scores by their gradient times the rate, update the bias and return the loss."""
    loss = 0.0
    for b in range(len(label)):
        top = z[0, b] + bias[0]
        for c in range(len(bias)):
            z[c, b] += bias[c]
            top = max(top, z[c, b])
        right = z[label[b], b] - top
        total = z.dtype.type(0)
        for c in range(len(bias)):
            z[c, b] = math.exp(z[c, b] - top)
            total += z[c, b]
        loss += share[b] * (math.log(total) - right)
        for c in range(len(bias)):
            z[c, b] *= rate * share[b] / total
        z[label[b], b] -= rate * share[b]
    for c in range(len(bias)):
        for b in range(len(label)):
            bias[c] -= z[c, b]
    return loss


@_compile
def _descend(x: Any, sample: Any, weight: Any, g: Any) -> None:
    """Take the step g [C, B] on the weight [C, M], of four samples at a time."""
    for b in range(0, len(sample), 4):
        b0, b1, b2, b3 = sample[b], sample[b + 1], sample[b + 2], sample[b + 3]
        for c in range(0, len(weight), 2):
            u0, u1, u2, u3 = g[c, b], g[c, b + 1], g[c, b + 2], g[c, b + 3]
            v0, v1, v2, v3 = g[c + 1, b], g[c + 1, b + 1], g[c + 1, b + 2], g[c + 1, b + 3]
            for m in range(weight.shape[1]):
                x0, x1, x2, x3 = x[b0, m], x[b1, m], x[b2, m], x[b3, m]
                weight[c, m] -= u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3
                weight[c + 1, m] -= v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3


@_compile
def _train(
    x: Any, y: Any, index: Any, share: Any, start: Any, rate: Any, increment: Any, loss: Any
) -> None:
    """Compute `write_increments`, with samples and classes padded to multiples of 4 and 2."""
    steps, rows, size = index.shape
    inputs = x.shape[1]
    classes = start.shape[1] // (inputs + 1)
    weight, bias = np.zeros((classes + classes % 2, inputs), x.dtype), np.zeros(classes, x.dtype)
    first = np.zeros_like(weight)
    sample, label = np.zeros((size + 3) // 4 * 4, np.int64), np.zeros(size, np.int64)
    z = np.zeros((len(weight), len(sample)), x.dtype)
    for row in range(rows):
        old, new = start[min(row, len(start) - 1)], increment[row]
        if row < len(start):
            for c in range(classes):
                for m in range(inputs):
                    first[c, m] = old[m * classes + c]
        weight[:] = first
        for c in range(classes):
            bias[c] = old[inputs * classes + c]
        total = 0.0
        for step in range(steps):
            sample[:] = index[step, row, 0]
            for b in range(size):
                sample[b] = index[step, row, b]
                label[b] = y[sample[b]]
            _score(x, sample, weight, z)
            total += _differentiate(z, bias, label, share[min(row, len(share) - 1)], rate[row])
            for b in range(size, len(sample)):
                for c in range(classes):
                    z[c, b] = 0.0
            _descend(x, sample, weight, z)
        loss[row] = total / steps
        for c in range(classes):
            for m in range(inputs):
                new[m * classes + c] = weight[c, m] - first[c, m]
            new[inputs * classes + c] = bias[c] - old[inputs * classes + c]
