"""Compiled local SGD of fully connected layers, from received parameters to their increments.

Rows are trained one after the other. The parameters of a row stay in the cache during all its
steps, and its minibatches are read where the samples lie. Products and exponentials are those of
`otafl.core.torch_math`, the passes between them those of `otafl.models.step_kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otafl.core import torch_math
from otafl.core.compiling import compile_loop, drop_stale
from otafl.core.torch_math import exponentiate, link_library, multiply_columns, prefetch
from otafl.models import step_kernel, transposition_kernel
from otafl.models.step_kernel import activate, backpropagate, form_gradient, shift_scores
from otafl.models.transposition_kernel import copy_transposed, subtract_from_transposed

INPUTS, OUTPUTS, WEIGHT, BIAS, IS_TURNED, IS_COPIED = range(6)
"""Columns of the table of layers.

Sides of the weight, places of weight and bias in the flat parameters, whether the weight is trained
transposed, and whether outputs are computed from a straight copy of it.
"""

OWN, COPY, SHIFT, OUT, G, SCALED = range(6)
"""Columns of the table of places in the memory of a row.

Weight, its straight copy, bias, outputs, gradient by the scores, and that times the step size.
"""

LINE = 64
"""Bytes of a line of the cache."""

MIN_PREFETCHED = 1024
"""Bytes of a sample from which asking for its memory ahead takes less time than it saves."""

is_available = link_library()
"""Whether torch's library has the functions. Without them nothing here can be compiled."""


@compile_loop
def train_rows(
    received: Any,
    x: Any,
    y: Any,
    index: Any,
    weight: Any,
    step: Any,
    slope: Any,
    layers: Any,
    places: Any,
    memory: Any,
    out: Any,
    totals: Any,
    picked: Any,
) -> None:
    """Take the SGD steps of rows, and write their increments.

    Parameters
    ----------
    received : ndarray [n, P], or [1, P]
        Received parameters of each row, or of all rows.
    x : ndarray [m, M]
        Samples.
    y : ndarray of int64 [m]
        Their classes.
    index : ndarray of int64 [T, n, B]
        Samples of the minibatches.
    weight : ndarray [n, B]
        Weights of the samples.
    step : ndarray [n]
        Step size.
    slope : float
        Slope of the activation below zero.
    layers, places : ndarray of int64 [L, 6]
        Tables of the layers, and of their places in `memory`.
    memory : ndarray
        Memory of a row. It ends with the minibatch, [B, M].
    out : ndarray [n, P]
        Increments, written.
    totals, picked : ndarray [T, n, B]
        Sums of the exponentials of the scores, and the scores of the classes, written.
    """
    num_steps, num_rows, size = index.shape
    inputs = layers[0, INPUTS]
    samples = memory[len(memory) - size * inputs :].reshape(size, inputs)
    labels = np.empty((1, size), np.int64)
    last = len(layers) - 1
    top = layers[last]
    tall, wide, turned = layers[:, INPUTS], layers[:, OUTPUTS], layers[:, IS_TURNED] == 1
    # weights are [1, N, M] if trained transposed, and copies [1, 0, N] where there is none
    sides = np.where(turned, wide, tall), np.where(turned, tall, wide)
    weights = _list_views(memory, places[:, OWN], sides[0], sides[1])
    copies = _list_views(memory, places[:, COPY], tall * layers[:, IS_COPIED], wide)
    biases = _list_views(memory, places[:, SHIFT], np.ones_like(wide), wide)
    every = np.full_like(wide, size)
    outs = _list_views(memory, places[:, OUT], every, wide)
    gs = _list_views(memory, places[:, G], every, wide)
    scaleds = _list_views(memory, places[:, SCALED], every, wide)
    scores, scaled, bias = outs[last], scaleds[last], biases[last][0]
    own, copy, first = weights[last], copies[last], samples.ctypes.data
    inputs_of_last = first if last == 0 else outs[last - 1].ctypes.data
    for row in range(num_rows):
        start, one = received[row if len(received) > 1 else 0], slice(row, row + 1)
        for number in range(last + 1):
            _load(start, layers[number], weights[number], biases[number])
        for t in range(num_steps):
            _gather(x, y, index, t, row, samples, labels)
            straight = start if t == 0 else memory[:0]
            _compute_hidden(first, slope, straight, layers[:last], weights, copies, biases, outs)
            _multiply(inputs_of_last, straight, top, own, copy, scores)
            shift_scores(scores, bias, labels, picked[t, one])
            exponentiate(scores.size, scores.ctypes.data)
            total, factor, eta = totals[t, one], weight[one], step[one]
            form_gradient(scores, labels, factor, eta, total, last == 0, scaled, bias)
            _descend_hidden(first, slope, eta, layers, weights, biases, outs, gs, scaleds)
            _descend(inputs_of_last, scaled, top, own)
        for number in range(last + 1):
            _store(start, layers[number], weights[number], biases[number], out[row])


@compile_loop
def _list_views(memory: Any, starts: Any, rows: Any, columns: Any) -> Any:
    """List a matrix [1, rows, columns] of each layer, which begins at `starts` in the memory."""
    return [
        memory[starts[k] : starts[k] + rows[k] * columns[k]].reshape(1, rows[k], columns[k])
        for k in range(len(starts))
    ]


@compile_loop
def _compute_hidden(
    x: Any,
    slope: Any,
    start: Any,
    hidden: Any,
    weights: Any,
    copies: Any,
    biases: Any,
    outs: Any,
) -> None:
    """Compute the outputs of the hidden layers, from samples at the address x."""
    for number in range(len(hidden)):
        _multiply(x, start, hidden[number], weights[number], copies[number], outs[number])
        activate(outs[number], biases[number][0], slope)
        x = outs[number].ctypes.data


@compile_loop
def _descend_hidden(
    x: Any,
    slope: Any,
    step: Any,
    layers: Any,
    weights: Any,
    biases: Any,
    outs: Any,
    gs: Any,
    scaleds: Any,
) -> None:
    """Take the steps of the hidden layers, from the gradient by the scores of the last one."""
    for number in range(len(layers) - 2, -1, -1):
        _multiply_back(gs[number + 1], layers[number + 1], weights[number + 1], gs[number])
        bias, is_first = biases[number][0], number == 0
        backpropagate(gs[number], outs[number], slope, step, is_first, scaleds[number], bias)
    for number in range(len(layers) - 1):
        _descend(x, scaleds[number], layers[number], weights[number])
        x = outs[number].ctypes.data


@compile_loop
def _gather(x: Any, y: Any, index: Any, t: int, row: int, samples: Any, labels: Any) -> None:
    """Copy a minibatch, and ask for the memory of the next one."""
    size, inputs = samples.shape
    width = inputs * x.itemsize
    t_next, row_next = (t + 1, row) if t + 1 < len(index) else (0, row + 1)
    for i in range(size):
        sample = index[t, row, i]
        for column in range(inputs):
            samples[i, column] = x[sample, column]
        labels[0, i] = y[sample]
        if width >= MIN_PREFETCHED and row_next < index.shape[1]:
            address = x.ctypes.data + index[t_next, row_next, i] * width
            for offset in range(0, width, LINE):
                prefetch(address + offset)


@compile_loop
def _load(start: Any, layer: Any, weight: Any, bias: Any) -> None:
    """Copy the received parameters of a layer to the memory of a row."""
    inputs, outputs, first = layer[INPUTS], layer[OUTPUTS], layer[WEIGHT]
    given = start[first : first + inputs * outputs]
    if layer[IS_TURNED]:
        copy_transposed(given.reshape(1, inputs, outputs), weight)
    else:
        _copy(given, weight.reshape(-1))
    _copy(start[layer[BIAS] : layer[BIAS] + outputs], bias[0, 0])


@compile_loop
def _store(start: Any, layer: Any, weight: Any, bias: Any, out: Any) -> None:
    """Write the increments of a layer's parameters."""
    inputs, outputs, first = layer[INPUTS], layer[OUTPUTS], layer[WEIGHT]
    old, new = start[first : first + weight.size], out[first : first + weight.size]
    if layer[IS_TURNED]:
        sides = 1, inputs, outputs
        subtract_from_transposed(weight, old.reshape(sides), new.reshape(sides))
    else:
        _subtract(weight.reshape(-1), old, new)
    first, stop = layer[BIAS], layer[BIAS] + outputs
    _subtract(bias[0, 0], start[first:stop], out[first:stop])


@compile_loop
def _copy(values: Any, out: Any) -> None:
    for index in range(len(out)):
        out[index] = values[index]


@compile_loop
def _subtract(new: Any, old: Any, out: Any) -> None:
    for index in range(len(out)):
        out[index] = new[index] - old[index]


@compile_loop
def _multiply(x: Any, start: Any, layer: Any, weight: Any, copy: Any, out: Any) -> None:
    """Compute the outputs [1, B, N] of a layer without the bias, from inputs at the address x.

    `start` are the flat parameters, if weights are still those; otherwise it is empty.
    """
    size, inputs, outputs = out.shape[1], layer[INPUTS], layer[OUTPUTS]
    turned, own, step = layer[IS_TURNED] == 1, weight.ctypes.data, outputs
    if layer[IS_COPIED]:
        if len(start):
            own = start[layer[WEIGHT] :].ctypes.data
        else:
            copy_transposed(weight, copy)
            own = copy.ctypes.data
        turned = False
    elif turned:
        step = inputs
    z = out.ctypes.data
    multiply_columns(
        turned, False, outputs, size, inputs, 1.0, own, step, x, inputs, 0.0, z, outputs
    )


@compile_loop
def _multiply_back(above: Any, layer: Any, weight: Any, g: Any) -> None:
    """Compute the gradient g [1, B, M] by a layer's inputs, from that by its scores, `above`."""
    size, inputs, outputs = g.shape[1], layer[INPUTS], layer[OUTPUTS]
    turned, own, given = layer[IS_TURNED] == 1, weight.ctypes.data, above.ctypes.data
    step, out = inputs if turned else outputs, g.ctypes.data
    multiply_columns(
        not turned, False, inputs, size, outputs, 1.0, own, step, given, outputs, 0.0, out, inputs
    )


@compile_loop
def _descend(x: Any, scaled: Any, layer: Any, weight: Any) -> None:
    """Take the step of a layer's weight, from inputs at the address x and scaled [1, B, N]."""
    size, inputs, outputs = scaled.shape[1], layer[INPUTS], layer[OUTPUTS]
    own, g = weight.ctypes.data, scaled.ctypes.data
    if layer[IS_TURNED]:
        multiply_columns(
            False, True, inputs, outputs, size, -1.0, x, inputs, g, outputs, 1.0, own, inputs
        )
    else:
        multiply_columns(
            False, True, outputs, inputs, size, -1.0, g, outputs, x, inputs, 1.0, own, outputs
        )


drop_stale(train_rows, torch_math, step_kernel, transposition_kernel)
