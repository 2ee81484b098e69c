"""Compiled sums of many rows with two coefficients, bit for bit those of torch's products.

A product of two rows of coefficients with many rows of a payload reads them slowly, because it
keeps all of them in reach. Here four rows at a time are added to a part of both sums that stays in
the first-level cache.
"""

from __future__ import annotations

import functools
from typing import Any

from otafl.core.compiling import compile_loop, multiply_add
from otafl.core.lazy import Tensor, torch

MIN_ROWS, MAX_ROWS = 65, 128
"""Numbers of rows for which the loop is faster than a product."""

MIN_COLUMNS = 4096
"""Smallest number of coordinates."""

PART = 2048
"""Columns of a part of the sums."""


def is_suitable(few: Tensor, x: Tensor) -> bool:
    """Return whether the kernel multiplies coefficients [S, J, K] by a payload [S, K, P].

    It serves rounds on one thread, if it gives the bits of torch on this processor.
    """
    num_sums, num_rows = few.shape[1:]
    return (
        num_sums == 2
        and MIN_ROWS <= num_rows <= MAX_ROWS
        and x.shape[2] >= MIN_COLUMNS
        and x.dtype == few.dtype == torch.float32
        and x.is_cpu
        and x.is_contiguous()
        and torch.is_inference_mode_enabled()
        and torch.get_num_threads() == 1
        and _keeps_bits(num_rows, x.shape[2])
    )


def compute_sums(few: Tensor, x: Tensor) -> Tensor:
    """Multiply coefficients [S, 2, K] by a payload [S, K, P], [S, 2, P]."""
    out = x.new_zeros(len(x), 2, x.shape[2])
    _add_rows(few.contiguous().numpy(), x.numpy(), out.numpy())
    return out


@functools.lru_cache(maxsize=64)
def _keeps_bits(num_rows: int, width: int) -> bool:
    """Return whether the sums are those of torch for a payload of this size."""
    x = torch.arange(num_rows * width, dtype=torch.float32).mul_(0.7).sin_()
    x = x.view(1, num_rows, width)
    few = torch.arange(2 * num_rows, dtype=torch.float32).sin_().view(1, 2, num_rows)
    return torch.equal(compute_sums(few, x), torch.bmm(few, x))


@compile_loop
def _add_rows(few: Any, x: Any, out: Any) -> None:
    """Add the rows of x with coefficients to `out`, four at a time."""
    for trial in range(len(x)):
        weight = few[trial]
        num_rows, width = x[trial].shape
        for first in range(0, width, PART):
            stop = min(first + PART, width)
            one, two = out[trial, 0, first:stop], out[trial, 1, first:stop]
            row = 0
            while row + 4 <= num_rows:
                a, b = x[trial, row, first:stop], x[trial, row + 1, first:stop]
                c, d = x[trial, row + 2, first:stop], x[trial, row + 3, first:stop]
                _add_four(a, b, c, d, weight, row, one, two)
                row += 4
            for rest in range(row, num_rows):
                _add_one(x[trial, rest, first:stop], weight, rest, one, two)


@compile_loop
def _add_four(a: Any, b: Any, c: Any, d: Any, weight: Any, row: int, one: Any, two: Any) -> None:
    a1, b1, c1, d1 = weight[0, row], weight[0, row + 1], weight[0, row + 2], weight[0, row + 3]
    a2, b2, c2, d2 = weight[1, row], weight[1, row + 1], weight[1, row + 2], weight[1, row + 3]
    for j in range(len(one)):
        first = multiply_add(b1, b[j], multiply_add(a1, a[j], one[j]))
        one[j] = multiply_add(d1, d[j], multiply_add(c1, c[j], first))
        second = multiply_add(b2, b[j], multiply_add(a2, a[j], two[j]))
        two[j] = multiply_add(d2, d[j], multiply_add(c2, c[j], second))


@compile_loop
def _add_one(a: Any, weight: Any, row: int, one: Any, two: Any) -> None:
    first, second = weight[0, row], weight[1, row]
    for j in range(len(one)):
        one[j] = multiply_add(first, a[j], one[j])
        two[j] = multiply_add(second, a[j], two[j])
