"""Compiled generator of `otafl.core.rng` on the CPU, bit for bit that of the tensor operations.

One pass hashes a word and writes two uniform numbers. Tensor operations carry each 64-bit word
through memory nine times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from otafl.core.compiling import compile_loop


def write_uniform_pairs(key: Tensor, counter: Tensor, upper: Tensor, lower: Tensor) -> None:
    """Write two arrays of uniform numbers in (0, 1), from the words of keys at mixed counters.

    Parameters
    ----------
    key : Tensor, int64 [n]
        Keys.
    counter : Tensor, int64 [m]
        Mixed counters.
    upper, lower : Tensor, float [n, m]
        Results, with adjacent columns: from the upper and the lower 23 bits of each word.
    """
    words = key.numpy().view(np.uint64), counter.numpy().view(np.uint64)
    _write_uniform_pairs(*words, upper.numpy(), lower.numpy())


def write_words(key: Tensor, counter: Tensor, words: Tensor) -> None:
    """Write the words of keys at mixed counters.

    Parameters
    ----------
    key : Tensor, int64 [n]
        Keys.
    counter : Tensor, int64 [m]
        Mixed counters.
    words : Tensor, int64 [n, m]
        Result.
    """
    _write_words(*(one.numpy().view(np.uint64) for one in (key, counter, words)))


@compile_loop
def _mix(z: Any) -> Any:
    """Apply the 64-bit finaliser to an unsigned word."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compile_loop
def _write_uniform_pairs(key: Any, counter: Any, upper: Any, lower: Any) -> None:
    real = upper.dtype.type
    half, middle, unit = real(0.5), real(0.5 + (1 << 22)), real(1.0 / (1 << 23))
    low_bits = np.uint64((1 << 23) - 1)
    for row in range(len(key)):
        for column in range(len(counter)):
            word = _mix(key[row] ^ counter[column])
            high = np.int32(np.int64(word) >> 41)  # the shift keeps the sign
            upper[row, column] = (real(high) + middle) * unit
            lower[row, column] = (real(np.int32(word & low_bits)) + half) * unit


@compile_loop
def _write_words(key: Any, counter: Any, words: Any) -> None:
    for row in range(len(key)):
        for column in range(len(counter)):
            words[row, column] = _mix(key[row] ^ counter[column])
