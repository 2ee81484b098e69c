"""Compiled sums of many rows with two coefficients, bit for bit those of torch's products.

A product of two rows of coefficients with many rows of a payload reads them slowly, because it
keeps all of them in reach. Here eight rows at a time are added to a part of both sums that stays in
the cache.
"""

from __future__ import annotations

import functools
from typing import Any

from otafl.core.compiling import compile_loop, multiply_add
from otafl.core.lazy import Tensor, torch

MIN_ROWS, MAX_ROWS = 65, 384
"""Numbers of rows for which the loop is faster than a product."""

MIN_COLUMNS = 4096
"""Smallest number of coordinates."""

MAX_NUMBERS = 1 << 27
"""Largest payload of a trial, since a sample of its size is compared before the first use."""

PART = 8192
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
        and num_rows * x.shape[2] <= MAX_NUMBERS
        and x.dtype == few.dtype == torch.float32
        and x.is_cpu
        and x.is_contiguous()
        and torch.is_inference_mode_enabled()
        and torch.get_num_threads() == 1
        and _keeps_bits(num_rows, x.shape[2])
    )


def compute_sums(few: Tensor, x: Tensor) -> Tensor:
    """Multiply coefficients [S, 2, K] by a payload [S, K, P], [S, 2, P]."""
    out = x.new_empty(len(x), 2, x.shape[2])
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
    """Write the sums of the rows of x with coefficients to `out`, eight rows at a time."""
    for trial in range(len(x)):
        weight = few[trial]
        num_rows, width = x[trial].shape
        for first in range(0, width, PART):
            stop = min(first + PART, width)
            one, two = out[trial, 0, first:stop], out[trial, 1, first:stop]
            one[:] = 0
            two[:] = 0
            row = 0
            while row + 8 <= num_rows:
                a, b = x[trial, row, first:stop], x[trial, row + 1, first:stop]
                c, d = x[trial, row + 2, first:stop], x[trial, row + 3, first:stop]
                e, f = x[trial, row + 4, first:stop], x[trial, row + 5, first:stop]
                g, h = x[trial, row + 6, first:stop], x[trial, row + 7, first:stop]
                _add_eight(a, b, c, d, e, f, g, h, weight[:, row:], one, two)
                row += 8
            for rest in range(row, num_rows):
                _add_one(x[trial, rest, first:stop], weight[:, rest], one, two)


@compile_loop
def _add_eight(
    a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, weight: Any, one: Any, two: Any
) -> None:
    first, second = _take_four(weight[0]), _take_four(weight[0, 4:])
    third, fourth = _take_four(weight[1]), _take_four(weight[1, 4:])
    for j in range(len(one)):
        half = _add_four(one[j], first, a[j], b[j], c[j], d[j])
        one[j] = _add_four(half, second, e[j], f[j], g[j], h[j])
        half = _add_four(two[j], third, a[j], b[j], c[j], d[j])
        two[j] = _add_four(half, fourth, e[j], f[j], g[j], h[j])


@compile_loop
def _take_four(values: Any) -> Any:
    """Return four numbers of an array as numbers that stay in registers."""
    return values[0], values[1], values[2], values[3]


@compile_loop
def _add_four(total: Any, weights: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Add four products one after the other, each rounded once."""
    half = multiply_add(weights[1], b, multiply_add(weights[0], a, total))
    return multiply_add(weights[3], d, multiply_add(weights[2], c, half))


@compile_loop
def _add_one(a: Any, weight: Any, one: Any, two: Any) -> None:
    first, second = weight[0], weight[1]
    for j in range(len(one)):
        one[j] = multiply_add(first, a[j], one[j])
        two[j] = multiply_add(second, a[j], two[j])
