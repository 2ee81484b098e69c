"""Compiled passes between the products of an SGD step, bit for bit those of torch.

Sums follow the order in which torch adds: lanes of eight numbers, four partial sums where a sum is
not wide enough for lanes, and a new partial sum after every 16 terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otafl.core.compiling import compile_loop

LANES = 8
"""Numbers that torch adds at once."""

PARTS = 4
"""Partial sums of what is not wide enough for `PARTS` lanes side by side."""

LEVEL = 16
"""Terms after which torch begins another partial sum."""

MAX_TERMS = LEVEL * LEVEL - 1
"""Largest number of terms with two levels of partial sums."""


@compile_loop
def activate(z: Any, bias: Any, slope: Any) -> None:
    """Add a bias [n, N] to outputs z [n, B, N] and apply the activation in place."""
    for row in range(z.shape[0]):
        added = bias[row]
        for sample in range(z.shape[1]):
            values = z[row, sample]
            for column in range(len(values)):
                value = values[column] + added[column]
                values[column] = value * slope if value <= 0.0 else value


@compile_loop
def shift_scores(z: Any, bias: Any, y: Any, picked: Any) -> None:
    """Add a bias [n, N] to scores z [n, B, N], and subtract the largest score of each sample.

    The scores of the classes y [n, B] are written to `picked` [n, B].
    """
    for row in range(z.shape[0]):
        added = bias[row]
        for sample in range(z.shape[1]):
            scores = z[row, sample]
            for column in range(len(scores)):
                scores[column] += added[column]
            largest = scores[0]
            for column in range(1, len(scores)):
                largest = max(largest, scores[column])  # the exponentials' sum brings any NaN
            for column in range(len(scores)):
                scores[column] -= largest
            picked[row, sample] = scores[y[row, sample]]


@compile_loop
def form_gradient(
    e: Any, y: Any, weight: Any, step: Any, total: Any, is_same: bool, scaled: Any, bias: Any
) -> None:
    """Form the gradient of the cross-entropy by scores, and take the step of the bias.

    Parameters
    ----------
    e : ndarray [n, B, N]
        Exponentials of the scores, replaced by the gradient.
    y : ndarray of int64 [n, B]
        Classes.
    weight : ndarray [n, B]
        Weights of the samples.
    step : ndarray [n]
        Step size.
    total : ndarray [n, B]
        Sums of the exponentials, written.
    is_same : bool
        Whether `scaled` is the same array as `e`.
    scaled : ndarray [n, B, N]
        The gradient times the step size, written.
    bias : ndarray [n, N]
        Bias, changed in place.
    """
    (rows, size, width), one = e.shape, e.dtype.type(1.0)
    for row in range(rows):
        _sum_rows(e[row], total[row])
        for sample in range(size):
            values, label = e[row, sample], y[row, sample]
            divisor, factor, own = total[row, sample], weight[row, sample], values[label]
            for column in range(width):
                values[column] = values[column] / divisor * factor
            values[label] = (own / divisor - one) * factor
        _scale(e[row].reshape(-1), step[row], is_same, scaled[row].reshape(-1))
        _subtract_column_sums(scaled[row], bias[row])


@compile_loop
def backpropagate(
    g: Any, out: Any, slope: Any, step: Any, is_same: bool, scaled: Any, bias: Any
) -> None:
    """Replace the gradient g [n, B, N] by outputs with that by scores, and take the bias's step.

    `out` [n, B, N] are the outputs. `scaled` receives the gradient times the step size [n];
    `is_same` tells that it is the same array as `g`.
    """
    for row in range(g.shape[0]):
        values, outputs = g[row].reshape(-1), out[row].reshape(-1)
        if slope > 0.0:
            for column in range(len(values)):
                value = values[column]
                values[column] = value if outputs[column] > 0.0 else value * slope
        else:
            for column in range(len(values)):
                values[column] = slope if outputs[column] <= 0.0 else values[column]
        _scale(values, step[row], is_same, scaled[row].reshape(-1))
        _subtract_column_sums(scaled[row], bias[row])


@compile_loop
def _scale(values: Any, factor: Any, is_same: bool, out: Any) -> None:
    """Write the values times a factor to `out`; a loop over one array is vectorised."""
    if is_same:
        for index in range(len(values)):
            values[index] *= factor
    else:
        for index in range(len(values)):
            out[index] = values[index] * factor


@compile_loop
def add_losses(log_total: Any, picked: Any, weight: Any, is_mean: bool, loss: Any) -> None:
    """Add the weighted sums of log_total - picked, all [T, n, B], to `loss` [n], step by step.

    With `is_mean` they are means over the samples instead. `picked` is overwritten.
    """
    for t in range(len(picked)):
        for row in range(picked.shape[1]):
            total, scores, share = log_total[t, row], picked[t, row], weight[t, row]
            for sample in range(len(scores)):
                lost = total[sample] - scores[sample]
                scores[sample] = lost if is_mean else lost * share[sample]
            mean = _sum_row(scores)
            loss[row] += mean / scores.dtype.type(len(scores)) if is_mean else mean


@compile_loop
def _sum_rows(rows: Any, out: Any) -> None:
    """Write the sums of rows [B, N] of adjacent numbers to `out` [B], in torch's order.

    A loop without calls takes a third of the time for rows of one lane.
    """
    size, width = rows.shape
    if LANES <= width < 2 * LANES:
        for row in range(size):
            values, total = rows[row], rows.dtype.type(0.0)
            for index in range(LANES, width):
                total += values[index]
            for index in range(LANES):
                total += values[index]
            out[row] = total
    else:
        for row in range(size):
            out[row] = _sum_row(rows[row])


@compile_loop
def _sum_row(values: Any) -> Any:
    """Sum adjacent numbers [N] in torch's order."""
    size, total = len(values), values.dtype.type(0.0)
    if size < LANES:
        return _sum_lane(values, 0, 1, size)
    count = size // LANES
    for index in range(count * LANES, size):
        total += values[index]
    if count == 1:
        for index in range(LANES):
            total += values[index]
        return total
    for lane in range(LANES):
        total += _sum_lane(values, lane, LANES, count)
    return total


@compile_loop
def _sum_lane(values: Any, first: int, step: int, count: int) -> Any:
    """Sum every `step`-th of the values from `first` on, `count` numbers in `PARTS` sums."""
    total = values.dtype.type(0.0)
    whole = count - count % PARTS
    for term in range(0, whole, PARTS):
        total += values[first + term * step]
    for term in range(whole, count):
        total += values[first + term * step]
    for k in range(1, PARTS if whole else 0):
        part = values.dtype.type(0.0)
        for term in range(k, whole, PARTS):
            part += values[first + term * step]
        total += part
    return total


@compile_loop
def _subtract_column_sums(rows: Any, target: Any) -> None:
    """Subtract the sums of the rows [B, N] from `target` [N].

    Columns that are wide enough for `PARTS` lanes have one partial sum, others `PARTS`.
    """
    size, width = rows.shape
    wide = width - width % (PARTS * LANES if width >= LANES else PARTS)
    if wide == 0 and size < PARTS * (LEVEL + 1):
        _subtract_narrow_sums(rows, target)
    else:
        _subtract_wide_sums(rows, wide, target)


@compile_loop
def _subtract_narrow_sums(rows: Any, target: Any) -> None:
    """Subtract the sums of few narrow rows, whose `PARTS` partial sums have one level."""
    size, width = rows.shape
    whole = size - size % PARTS
    for column in range(width):
        first = second = third = fourth = rows.dtype.type(0.0)
        for row in range(0, whole, PARTS):
            first += rows[row, column]
            second += rows[row + 1, column]
            third += rows[row + 2, column]
            fourth += rows[row + 3, column]
        for row in range(whole, size):
            first += rows[row, column]
        target[column] -= first + second + third + fourth


@compile_loop
def _subtract_wide_sums(rows: Any, wide: int, target: Any) -> None:
    """Subtract the sums of many or wide rows, of which `wide` columns have one partial sum."""
    size, width = rows.shape
    sums = np.zeros((PARTS, width), rows.dtype)
    if wide:
        _add_rows(rows[:, :wide], 0, size, 1, sums[0, :wide], sums[1, :wide])
    if wide < width:
        whole = size - size % PARTS
        narrow, parts = rows[:, wide:], sums[:, wide:]
        if whole <= PARTS * LEVEL:
            for row in range(size):
                _add_row(narrow[row], parts[row % PARTS if row < whole else 0])
        else:
            level = np.empty(width - wide, rows.dtype)
            for k in range(PARTS):
                _add_rows(narrow, k, whole, PARTS, parts[k], level)
            for row in range(whole, size):
                _add_row(narrow[row], parts[0])
        for k in range(1, PARTS):
            _add_row(parts[k], parts[0])
    for column in range(width):
        target[column] -= sums[0, column]


@compile_loop
def _add_row(values: Any, total: Any) -> None:
    for column in range(len(values)):
        total[column] += values[column]


@compile_loop
def _add_rows(rows: Any, first: int, stop: int, step: int, total: Any, part: Any) -> None:
    """Add rows to `total`, which is zero at first, by partial sums of `LEVEL` rows."""
    part[:] = 0
    for number, row in enumerate(range(first, stop, step)):
        _add_row(rows[row], part)
        if number % LEVEL == LEVEL - 1:
            _add_row(part, total)
            part[:] = 0
    _add_row(part, total)
