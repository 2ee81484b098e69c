"""Dictionaries of tensors, by which the parts of a round exchange values."""

from __future__ import annotations

from collections.abc import Mapping

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
