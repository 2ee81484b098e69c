"""Compiled steps of Adam, bit for bit those of the tensor operations of `otafl.algorithms.adam`.

Two passes replace six. The root between them stays torch's, whose last bits no other program has.
"""

from __future__ import annotations

from typing import Any

from otafl.core.compiling import compile_loop, multiply_add


@compile_loop
def move_moments(
    m: Any, v: Any, first: int, gradient: Any, new: Any, second_beta: Any, second_new: Any
) -> None:
    """Move the moments of adjacent columns in place.

    Parameters
    ----------
    m, v : ndarray [n, Q]
        First and second moment.
    first : int
        First of the columns.
    gradient : ndarray [n, q]
        Gradient by the columns.
    new : real number of the same precision
        Share of the gradient in the first moment.
    second_beta, second_new : real number of the same precision
        Shares of the old second moment, and of the square of the gradient, in the second moment.
    """
    for row in range(gradient.shape[0]):
        end = first + gradient.shape[1]
        of_row, moment, square = gradient[row], m[row, first:end], v[row, first:end]
        for column in range(len(of_row)):  # adjacent numbers, so that the loop is vectorised
            g, before = of_row[column], moment[column]
            moment[column] = multiply_add(new, g - before, before)
            square[column] = multiply_add(second_new * g, g, square[column] * second_beta)


@compile_loop
def move_rows(rows: Any, m: Any, root: Any, scale: Any, offset: Any) -> None:
    """Take rows -= m / (scale root + offset) in place.

    Parameters
    ----------
    rows, m, root : ndarray [n, Q]
        Numbers, first moment and root of the second.
    scale, offset : ndarray [n, 1]
        Corrections of a row.
    """
    for row in range(rows.shape[0]):
        times, plus = scale[row, 0], offset[row, 0]
        for column in range(rows.shape[1]):
            under = root[row, column] * times
            rows[row, column] -= m[row, column] / (under + plus)
