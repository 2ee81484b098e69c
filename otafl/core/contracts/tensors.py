"""Name tensors, which is what a round consists of."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

MODEL = "model"
"""The block that holds all parameters of a model side by side, [S, P] or [n, P]."""

Tensors = dict[str, Tensor]

Hyper = Mapping[str, Tensor]
"""Field name -> [S]: the numeric fields of a component over which trials of one stack may
differ."""


def unsqueeze_like(values: Tensor, like: Tensor) -> Tensor:
    """Return numbers [n], one a row, ready to multiply a block `like` [n, *shape]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def take_rows(tensor: Tensor, row_index: Tensor) -> Tensor:
    """Return the rows [n] int64 of a block [.., *shape], where the rows' device is.

    A block may lie elsewhere, on the host or on disk.
    """
    return tensor.index_select(0, row_index.to(tensor.device)).to(row_index.device)
