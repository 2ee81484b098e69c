"""Compiled generator of `otafl.core.rng` on the CPU, with the draws of the tensor operations.

One pass hashes a word and writes two uniform numbers. Tensor operations carry each 64-bit word
through memory nine times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiled_module import compile_loop


def derive_keys(
    root: Tensor, word: int, rounds: Tensor, pairs: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Derive the keys of rounds.

    Parameters
    ----------
    root : Tensor, int64 [S]
        Keys of the trials.
    word : int
        Hash of the purpose.
    rounds : Tensor, int64 [R]
        Rounds.
    pairs : tuple of Tensor, int64 [n] each, or None
        Trials and devices of the keys; the trials themselves if None.

    Returns
    -------
    Tensor, int64 [R, n], or [R, S]
        Keys.
    """
    width = len(root) if pairs is None else len(pairs[0])
    out = torch.empty(len(rounds), width, dtype=torch.int64)
    given = (out[:0, 0], out[:0, 0]) if pairs is None else pairs
    trial, device = (one.contiguous().numpy() for one in given)
    words = (view_words(one) for one in (root, rounds, out))
    _derive_keys(*words, np.uint64(word % (1 << 64)), trial, device)
    return out


def view_words(tensor: Tensor) -> np.ndarray:
    """Return a view of int64 numbers as unsigned words."""
    return tensor.numpy().view(np.uint64)


def write_uniform_pairs(
    key: Tensor, counter: Tensor, upper: Tensor, lower: Tensor, scale: float
) -> None:
    """Write two arrays of uniform numbers in (0, 1), from the words of keys at mixed counters.

    Parameters
    ----------
    key : Tensor, int64 [n]
        Keys.
    counter : Tensor, int64 [m]
        Mixed counters.
    upper, lower : Tensor, float [n, m]
        Results, with adjacent columns: from the upper and the lower 23 bits of each word.
    scale : float
        Factor of the numbers of `lower`.
    """
    words = view_words(key), view_words(counter)
    strides = upper.stride(0), lower.stride(0)
    _write_uniform_pairs(*words, view_memory(upper), view_memory(lower), *strides, scale)


def view_memory(rows: Tensor) -> np.ndarray:
    """Return a contiguous view of rows with adjacent columns, and of the gaps between them.

    Numba uses vector instructions only for arrays that are contiguous.
    """
    length = (len(rows) - 1) * rows.stride(0) + rows.shape[1] if rows.numel() else 0
    return rows.as_strided((length,), (1,)).numpy()


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
    _write_words(*map(view_words, (key, counter, words)))


def choose(uniform: Tensor, count: Tensor) -> Tensor:
    """Choose different positions, as `otafl.data.training_data.choose`."""
    pick = torch.empty(uniform.shape, dtype=torch.int64)
    rows = -1, *uniform.shape[-2:]
    numbers, picks = uniform.reshape(rows).numpy(), pick.view(rows).numpy()
    _choose(numbers, count.contiguous().numpy(), picks)
    return pick


@compile_loop
def mix(z: Any) -> Any:
    """Apply the 64-bit finaliser to an unsigned word."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compile_loop
def _extend(key: Any, word: Any) -> Any:
    """Derive a new key from a key and one more word."""
    return mix(key * np.uint64(0x9E3779B97F4A7C15) + word)


@compile_loop
def _derive_keys(root: Any, rounds: Any, out: Any, word: Any, trial: Any, device: Any) -> None:
    base = np.empty_like(root)
    for row in range(len(root)):
        base[row] = _extend(root[row], word)
    by_pair = len(trial) > 0
    for i in range(len(rounds)):
        for j in range(out.shape[1]):
            key = _extend(base[trial[j] if by_pair else j], rounds[i])
            out[i, j] = _extend(key, np.uint64(device[j] + 1)) if by_pair else key


@compile_loop
def _write_uniform_pairs(
    key: Any,
    counter: Any,
    upper: Any,
    lower: Any,
    upper_stride: int,
    lower_stride: int,
    scale: float,
) -> None:
    width = len(counter)
    for row in range(len(key)):
        begin, start = row * upper_stride, row * lower_stride
        _write_row(
            key[row], counter, upper[begin : begin + width], lower[start : start + width], scale
        )


@compile_loop
def _write_row(key: Any, counter: Any, upper: Any, lower: Any, scale: float) -> None:
    real = upper.dtype.type
    factor = real(scale)
    half, middle, unit = real(0.5), real(0.5 + (1 << 22)), real(1.0 / (1 << 23))
    low_bits = np.uint64((1 << 23) - 1)
    for column in range(len(counter)):
        word = mix(key ^ counter[column])
        high = np.int32(np.int64(word) >> 41)  # the shift keeps the sign
        upper[column] = (real(high) + middle) * unit
        lower[column] = (real(np.int32(word & low_bits)) + half) * unit * factor


@compile_loop
def _write_words(key: Any, counter: Any, words: Any) -> None:
    for row in range(len(key)):
        for column in range(len(counter)):
            words[row, column] = mix(key[row] ^ counter[column])


@compile_loop
def _choose(uniform: Any, count: Any, pick: Any) -> None:
    blocks, rows, size = uniform.shape
    for block in range(blocks):
        for row in range(rows):
            for i in range(size):
                last = count[row] - size + i
                one = np.int64(np.float64(uniform[block, row, i]) * (last + 1))
                for j in range(i):
                    if pick[block, row, j] == one:
                        one = last
                        break
                pick[block, row, i] = one
