"""Compiled norms of long rows on the CPU, bit for bit those of torch.

torch adds the squares of a row to eight sums and waits for each addition. Here the sums of eight
rows are added at the same time, so that they are read at the speed of memory.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir  # comes with Numba
from numba import types

from otafl.core.compiling import compile_loop, make_intrinsic, multiply_add
from otafl.core.lazy import Tensor, torch
from otafl.core.rng_kernel import view_memory

LANES = 8
"""Sums of a row, as in torch with 256-bit registers."""

MIN_NUMBERS = 1 << 16
"""Smallest number of elements; for fewer, the call costs more than it saves."""


def is_suitable(*tensors: Tensor) -> bool:
    """Return whether the kernel computes the norms of rows [n, P], or of their differences.

    It serves rounds on one thread, if it gives the bits of torch on this processor.
    """
    return (
        all(map(_has_long_rows, tensors))
        and torch.is_inference_mode_enabled()
        and torch.get_num_threads() == 1
        and _keeps_bits()
    )


def _has_long_rows(rows: Tensor) -> bool:
    return (
        rows.numel() >= MIN_NUMBERS
        and rows.dtype == torch.float32
        and rows.is_cpu
        and rows.stride(1) == 1
        and rows.stride(0) >= rows.shape[1]
    )


def compute_norms(rows: Tensor) -> Tensor:
    """Compute the norms [n] of rows [n, P]."""
    out = rows.new_empty(len(rows))
    _compute_norms(view_memory(rows), rows.stride(0), rows.shape[1], out.numpy())
    return out


def compute_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Compute the norms [n] of the differences of rows [n, P]."""
    out = rows.new_empty(len(rows))
    strides = rows.stride(0), others.stride(0)
    _compute_distances(view_memory(rows), view_memory(others), *strides, rows.shape[1], out.numpy())
    return out


@functools.cache
def _keeps_bits() -> bool:
    """Return whether the norms are those of torch, for every remainder of lanes and of rows."""
    both = torch.arange(2 * 207 * 107, dtype=torch.float32).mul_(0.7).sin_().view(2, 207, 107)
    for width in range(100, 108):
        x, y = both[..., :width]
        same = torch.equal(compute_norms(x), torch.linalg.vector_norm(x, dim=1))
        if not same or not torch.equal(
            compute_distances(x, y), torch.linalg.vector_norm(x - y, dim=1)
        ):
            return False
    return True


def _load_lanes(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> tuple[Any, Any]:
    """Return the pointer to lanes of an array from an element on, and their values."""
    number = context.get_data_type(kind.dtype)
    data = context.make_array(kind)(context, builder, array).data
    lanes = ir.VectorType(number, LANES).as_pointer()
    pointer = builder.bitcast(builder.gep(data, [start]), lanes)
    return pointer, builder.load(pointer, align=4)


@make_intrinsic
def _add_squares(typing: Any, rows: Any, start: Any, sums: Any, index: Any) -> Any:
    """Add the squares of lanes of `rows` to lanes of `sums`, both [..] float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, x = _load_lanes(context, builder, rows, args[0], args[1])
        place, total = _load_lanes(context, builder, sums, args[2], args[3])
        builder.store(builder.fadd(total, builder.fmul(x, x)), place, align=4)
        return context.get_dummy_value()

    return types.void(rows, types.intp, sums, types.intp), generate


@make_intrinsic
def _add_squared_differences(
    typing: Any, rows: Any, start: Any, others: Any, begin: Any, sums: Any, index: Any
) -> Any:
    """Add the squared differences of lanes of `rows` and `others` to lanes of `sums`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, x = _load_lanes(context, builder, rows, args[0], args[1])
        _, y = _load_lanes(context, builder, others, args[2], args[3])
        place, total = _load_lanes(context, builder, sums, args[4], args[5])
        z = builder.fsub(x, y)
        builder.store(builder.fadd(total, builder.fmul(z, z)), place, align=4)
        return context.get_dummy_value()

    signature = types.void(rows, types.intp, others, types.intp, sums, types.intp)
    return signature, generate


@compile_loop
def _add_rest(total: Any, rest: Any, stop: int) -> Any:
    """Add the squares of the numbers that fill no lanes.

    As in torch, groups of four are rounded twice for each number, the others once.
    """
    twice = stop - stop % 4
    for column in range(twice):
        total += rest[column] * rest[column]
    for column in range(twice, stop):
        total = multiply_add(rest[column], rest[column], total)
    return total


@compile_loop
def _add_lanes(sums: Any, row: int) -> Any:
    total = sums[LANES * row]
    for lane in range(1, LANES):
        total += sums[LANES * row + lane]
    return total


@compile_loop
def _compute_norms(flat: Any, stride: int, width: int, out: Any) -> None:
    """Write the norms of rows, which start every `stride` elements, to `out`."""
    whole = width - width % LANES
    sums = np.zeros(8 * LANES, flat.dtype)
    row = 0
    while row < len(out):
        left, begin = len(out) - row, row * stride
        count = 8 if left >= 8 else 4 if left >= 4 else 1
        sums[:] = 0
        if count == 8:
            for column in range(begin, begin + whole, LANES):
                _add_squares_of_four(flat, column, stride, sums, 0)
                _add_squares_of_four(flat, column + 4 * stride, stride, sums, 4 * LANES)
        elif count == 4:
            for column in range(begin, begin + whole, LANES):
                _add_squares_of_four(flat, column, stride, sums, 0)
        else:
            for column in range(begin, begin + whole, LANES):
                _add_squares(flat, column, sums, 0)
        for k in range(count):
            first = begin + k * stride
            rest = flat[first + whole : first + width]
            out[row + k] = np.sqrt(_add_rest(_add_lanes(sums, k), rest, width - whole))
        row += count


@compile_loop
def _add_squares_of_four(flat: Any, column: int, stride: int, sums: Any, index: int) -> None:
    _add_squares(flat, column, sums, index)
    _add_squares(flat, column + stride, sums, index + LANES)
    _add_squares(flat, column + 2 * stride, sums, index + 2 * LANES)
    _add_squares(flat, column + 3 * stride, sums, index + 3 * LANES)


@compile_loop
def _compute_distances(flat: Any, other: Any, stride: int, step: int, width: int, out: Any) -> None:
    """Write the norms of the differences of rows to `out`, as `_compute_norms`."""
    whole = width - width % LANES
    sums = np.zeros(2 * LANES, flat.dtype)
    for row in range(0, len(out), 2):
        count = min(2, len(out) - row)
        begin, start = row * stride, row * step
        sums[:] = 0
        if count == 2:
            for column in range(0, whole, LANES):
                _add_squared_differences(flat, begin + column, other, start + column, sums, 0)
                two, too = begin + stride + column, start + step + column
                _add_squared_differences(flat, two, other, too, sums, LANES)
        else:
            for column in range(0, whole, LANES):
                _add_squared_differences(flat, begin + column, other, start + column, sums, 0)
        for k in range(count):
            first, second = begin + k * stride, start + k * step
            rest = flat[first + whole : first + width] - other[second + whole : second + width]
            out[row + k] = np.sqrt(_add_rest(_add_lanes(sums, k), rest, width - whole))
