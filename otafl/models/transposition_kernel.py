"""Compiled passes between weights and weights that lie transposed in memory.

Eight inputs are processed at a time, so that reads and writes both have neighbours.
"""

from __future__ import annotations

from typing import Any

from otafl.core.compiling import compile_loop

SIDE = 8
"""Inputs of a block."""


@compile_loop
def copy_transposed(block: Any, out: Any) -> None:
    """Copy matrices [n, M, N] to their transposes [n, N, M]."""
    rows, inputs, outputs = block.shape
    whole = inputs - inputs % SIDE
    for row in range(rows):
        for first in range(0, whole, SIDE):
            for column in range(outputs):
                for offset in range(SIDE):
                    out[row, column, first + offset] = block[row, first + offset, column]
        for index in range(whole, inputs):
            for column in range(outputs):
                out[row, column, index] = block[row, index, column]


@compile_loop
def subtract_from_transposed(new: Any, old: Any, out: Any) -> None:
    """Write new^T - old [n, M, N] to `out`, for new [n, N, M]."""
    rows, inputs, outputs = old.shape
    whole = inputs - inputs % SIDE
    for row in range(rows):
        for first in range(0, whole, SIDE):
            for column in range(outputs):
                for offset in range(SIDE):
                    index = first + offset
                    out[row, index, column] = new[row, column, index] - old[row, index, column]
        for index in range(whole, inputs):
            for column in range(outputs):
                out[row, index, column] = new[row, column, index] - old[row, index, column]
