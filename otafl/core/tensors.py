"""Dictionaries of tensors that the parts of a round exchange, and numbers that the host knows."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

MODEL = "model"
"""Name of the tensor that holds all parameters of a model side by side, [S, P] or [n, P]."""

VERSION = "version"
"""Name of the server's tensor that counts its steps, int64 [S]."""

Tensors = dict[str, Tensor]
"""Tensors by name."""

Hyper = Mapping[str, Tensor]
"""Stackable settings of a component, name -> [S].

Trials of one stack can differ in them.
"""


def unsqueeze_like(values: Tensor, like: Tensor) -> Tensor:
    """Reshape numbers, one a row, for multiplication with a tensor.

    Parameters
    ----------
    values : Tensor [n]
        A number for each row.
    like : Tensor [n, *shape]
        Tensor that they multiply.

    Returns
    -------
    Tensor [n, 1, ...]
        View of the values with as many dimensions as `like`.
    """
    return values.view(-1, *[1] * (like.dim() - 1))


def take_rows(tensor: Tensor, row_index: Tensor) -> Tensor:
    """Select rows of a tensor that can be on another device.

    Parameters
    ----------
    tensor : Tensor [m, *shape]
        Table on the device of `row_index`, on the host or on disk.
    row_index : Tensor, int64 [n]
        Rows to select.

    Returns
    -------
    Tensor [n, *shape]
        The rows, on the device of `row_index`.
    """
    return tensor.index_select(0, row_index.to(tensor.device)).to(row_index.device)


def multiply_rows(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x W of each row, in one product where all rows share their inputs.

    Parameters
    ----------
    x : Tensor [n, B, M], or [1, B, M]
        Inputs of each row, or of all rows.
    weight : Tensor [n, M, N]
        Matrix of each row.

    Returns
    -------
    Tensor [n, B, N]
        Products.
    """
    if x.shape[0] == weight.shape[0]:
        return torch.bmm(x, weight)
    side_by_side = weight.transpose(0, 1).flatten(1)
    return (x[0] @ side_by_side).unflatten(1, (len(weight), -1)).transpose(0, 1)


_noting: list[list[Tensor]] = []


@contextmanager
def note_constants() -> Iterator[list[Tensor]]:
    """Note the constants that are handed out, to keep their memory for what reads it later."""
    _noting.append([])
    try:
        yield _noting[-1]
    finally:
        _noting.pop()


Numbers = float | tuple[float | tuple[float, ...], ...]


def get_constant(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers as a tensor, the same one in every call. Do not write to it."""
    constant = _make_constant(values, dtype, device)
    for noted in _noting:
        noted.append(constant)
    return constant


@functools.lru_cache(maxsize=1024)
def _make_constant(values: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a later caller may take gradients
        return torch.tensor(values, dtype=dtype, device=device)
