"""Compiled SGD of fully connected layers on the CPU, all local steps of a row in one pass.

Tensor operations gather each minibatch, and take some 25 calls for each step. This loop reads the
samples where they lie, and keeps the model of a row in the processor's cache until its last step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiled_module import compile_loop
from otafl.core.contracts import Samples

_compile = functools.partial(compile_loop, fastmath=frozenset({"contract", "nsz", "reassoc"}))


def write_increments(
    widths: Sequence[int],
    slope: float,
    samples: Samples,
    received: Tensor,
    rate: Tensor,
    increment: Tensor,
) -> Tensor:
    """Train the rows by SGD with the cross-entropy, and write what they send.

    Parameters
    ----------
    widths : sequence of int
        Inputs of the first layer, and outputs of each layer.
    slope : float
        Slope of the activation between layers below zero, 0 for ReLU.
    samples : Samples
        Minibatches of T steps of B samples, and their labels.
    received : Tensor, float [n, P]
        Weight [M, N] and bias [N] of each layer in turn, side by side, from which each row starts.
        Rows may share their memory.
    rate : Tensor, float [n]
        Step size.
    increment : Tensor, float [n, P]
        Result, trained less received parameters.

    Returns
    -------
    Tensor, float [n]
        Mean loss over the steps.
    """
    start = received if received.stride(0) else received[:1]
    share, loss = samples.weight, torch.empty_like(rate)
    if share is None:
        size = samples.rows.shape[2]
        share = rate.new_full((1, 1, size), 1.0 / size)
    given = samples.x, samples.y, samples.rows, share, start, rate
    arrays = *(one.contiguous().numpy() for one in given), increment.numpy(), loss.numpy()
    shapes = [(after + after % 2, before) for before, after in pairwise(widths)]
    # torch aligns memory with the widest vectors, which makes large layers twice as fast
    first, weight = (tuple(rate.new_zeros(one).numpy() for one in shapes) for _ in range(2))
    _train(arrays, np.array(widths[1:]), np.float32(slope), first, weight)
    return loss


@_compile
def _score(x: Any, sample: Any, weight: Any, z: Any) -> None:
    """Write the scores z [N, B] without the bias, of two outputs and four samples at a time."""
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
def _activate(z: Any, bias: Any, slope: Any, h: Any) -> None:
    """Write the activations h [B, N] of scores z without the bias."""
    for b in range(len(h)):
        for c in range(len(bias)):
            own = z[c, b] + bias[c]
            h[b, c] = own if own > 0 else slope * own


@_compile
def _differentiate(z: Any, bias: Any, label: Any, share: Any, rate: Any) -> float:
    """Replace the scores of the last layer by their gradient times the rate; return the loss."""
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
        step = rate * share[b]
        scale = step / total
        for c in range(len(bias)):
            z[c, b] *= scale
        z[label[b], b] -= step
    z[:, len(label) :] = 0
    return loss


@_compile
def _backpropagate(g: Any, weight: Any, h: Any, slope: Any, below: Any) -> None:
    """Write the gradient [M, B] by the scores of activations h, from g [N, B] by a layer's own."""
    own = np.empty(weight.shape[1], weight.dtype)
    for b in range(len(h)):
        own[:] = 0
        for c in range(len(weight)):
            for m in range(len(own)):
                own[m] += g[c, b] * weight[c, m]
        for m in range(len(own)):
            below[m, b] = own[m] if h[b, m] > 0 else slope * own[m]


@_compile
def _descend(x: Any, sample: Any, weight: Any, bias: Any, g: Any) -> None:
    """Take the step g [N, B] of a layer, of two outputs and four samples at a time."""
    for c in range(len(bias)):
        for b in range(len(sample)):
            bias[c] -= g[c, b]
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
def _read(flat: Any, weight: Any, width: int) -> None:
    """Copy a weight [M, N], flat, of N = width outputs, into the array [N, M] of a layer."""
    for c in range(width):
        for m in range(weight.shape[1]):
            weight[c, m] = flat[m * width + c]


@_compile
def _write_moves(weight: Any, first: Any, flat: Any, width: int) -> None:
    """Write how far a layer's weight has moved from the first one, as `_read` reads it."""
    for c in range(width):
        for m in range(weight.shape[1]):
            flat[m * width + c] = weight[c, m] - first[c, m]


@_compile
def _train(arrays: Any, outputs: Any, slope: Any, first: Any, weight: Any) -> None:
    """Compute `write_increments`, with samples and outputs padded to multiples of 4 and 2.

    first, weight: memory [N, M] of each layer, for its weight at the start and now.
    """
    x, y, index, share, start, rate, increment, loss = arrays
    steps, rows, size = index.shape
    layers, most, many = len(weight), outputs.max() + outputs.max() % 2, (size + 3) // 4 * 4
    z, h = np.zeros((layers, most, many), x.dtype), np.zeros((layers, many, most), x.dtype)
    biases, label = np.zeros((layers, most), x.dtype), np.zeros(size, np.int64)
    sample, place = np.zeros(many, np.int64), np.arange(many)
    for row in range(rows):
        old, new, at = start[min(row, len(start) - 1)], increment[row], 0
        for layer in range(layers):
            width, at_bias = outputs[layer], at + outputs[layer] * first[layer].shape[1]
            if row < len(start):
                _read(old[at:at_bias], first[layer], width)
            weight[layer][:] = first[layer]
            at = at_bias + width
            biases[layer, :width] = old[at_bias:at]
        total = 0.0
        for step in range(steps):
            sample[:] = index[step, row, 0]
            for b in range(size):
                sample[b] = index[step, row, b]
                label[b] = y[sample[b]]
            _score(x, sample, weight[0], z[0])
            for layer in range(1, layers):
                bias = biases[layer - 1, : outputs[layer - 1]]
                _activate(z[layer - 1], bias, slope, h[layer - 1])
                _score(h[layer - 1], place, weight[layer], z[layer])
            bias = biases[layers - 1, : outputs[-1]]
            shares = share[min(step, len(share) - 1), min(row, share.shape[1] - 1)]
            total += _differentiate(z[layers - 1], bias, label, shares, rate[row])
            for layer in range(layers - 1, 0, -1):
                _backpropagate(z[layer], weight[layer], h[layer - 1], slope, z[layer - 1])
                _descend(h[layer - 1], place, weight[layer], biases[layer], z[layer])
            _descend(x, sample, weight[0], biases[0], z[0])
        loss[row] = total / steps
        at = 0
        for layer in range(layers):
            width, at_bias = outputs[layer], at + outputs[layer] * first[layer].shape[1]
            _write_moves(weight[layer], first[layer], new[at:at_bias], width)
            at = at_bias + width
            for c in range(width):
                new[at_bias + c] = biases[layer, c] - old[at_bias + c]
