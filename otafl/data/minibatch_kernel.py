"""Compiled draw of minibatches on the CPU, bit for bit that of the tensor operations.

One pass hashes the words, picks different samples by Floyd's algorithm and looks up their indices.
Tensor operations take a dispatch for each pick.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiling import compile_loop
from otafl.core.rng_kernel import mix, view_words


def draw_samples(
    key: Tensor, counter: Tensor, cell: Tensor, count: Tensor, index: Tensor, size: int
) -> Tensor:
    """Draw the samples of minibatches.

    Parameters
    ----------
    key : Tensor, int64 [T, n]
        Keys of the draws.
    counter : Tensor, int64 [(B + 1) // 2]
        Mixed counters.
    cell : Tensor, int64 [n]
        Rows, as indices in [S * K].
    count : Tensor, int64 [S * K]
        Number of samples of each device.
    index : Tensor, int64 [S * K, n_max]
        Indices of each device's samples.
    size : int
        Samples of a minibatch, B.

    Returns
    -------
    Tensor, int64 [T, n, B]
        Indices of the samples. A device with fewer than B gives all, then its first.
    """
    out = torch.empty(*key.shape, size, dtype=torch.int64)
    table = cell.contiguous().numpy(), count.numpy(), index.numpy()
    _draw_samples(view_words(key), view_words(counter), *table, out.numpy())
    return out


@compile_loop
def _draw_samples(key: Any, counter: Any, cell: Any, count: Any, index: Any, out: Any) -> None:
    size, half, unit = out.shape[2], len(counter), 1.0 / (1 << 23)
    for t in range(len(key)):
        for row in range(len(cell)):
            own, picked = index[cell[row]], out[t, row]
            number = count[cell[row]]
            if number < size:
                for i in range(size):
                    picked[i] = own[i if i < number else 0]
                continue
            for i in range(half):  # the uniform numbers of `rng_kernel`, exact in both precisions
                word = mix(key[t, row] ^ counter[i])
                high = float(np.int64(word) >> 41) + (0.5 + (1 << 22))
                picked[i] = int(high * unit * (number - size + i + 1))
                if half + i < size:
                    low = float(np.int64(word & np.uint64((1 << 23) - 1))) + 0.5
                    picked[half + i] = int(low * unit * (number - size + half + i + 1))
            for i in range(1, size):
                for j in range(i):
                    if picked[j] == picked[i]:
                        picked[i] = number - size + i
                        break
            for i in range(size):
                picked[i] = own[picked[i]]
