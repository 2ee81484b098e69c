"""Loops that call functions of torch's library. They need Numba, so tests import them late."""

from __future__ import annotations

from typing import Any

from otafl.core import torch_math
from otafl.core.compiling import compile_loop


@compile_loop
def multiply(a: Any, b: Any, c: Any, a_turned: bool, b_turned: bool, factor: Any) -> None:
    """Compute C = factor A B + C of matrices in the order of columns, given as their transposes."""
    columns, rows = c.shape
    terms = a.shape[1] if a_turned else a.shape[0]
    places = a.ctypes.data, b.ctypes.data, c.ctypes.data
    steps = a.shape[1], b.shape[1], c.shape[1]
    torch_math.multiply_columns(
        a_turned,
        b_turned,
        rows,
        columns,
        terms,
        factor,
        places[0],
        steps[0],
        places[1],
        steps[1],
        1.0,
        places[2],
        steps[2],
    )


@compile_loop
def exponentiate(values: Any) -> None:
    torch_math.exponentiate(values.size, values.ctypes.data)


@compile_loop
def add(values: Any) -> float:
    total = 0.0
    for index in range(len(values)):
        torch_math.prefetch(values[index:].ctypes.data)
        total += values[index]
    return total
