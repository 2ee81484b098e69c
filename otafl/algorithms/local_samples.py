"""Passes over all samples of devices with different numbers of samples, without the padding."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from otafl.core.contracts import Batch, Tensors

WIDTH = 128
"""Samples of a device in a piece."""


def split_into_pieces(full: Batch) -> Iterator[tuple[Tensor | None, Batch]]:
    """Split padded rows into pieces of `WIDTH` samples.

    Parameters
    ----------
    full : Batch [n, n_max]
        All samples, with the padding last.

    Yields
    ------
    rows : Tensor, int64 [m], or None
        Rows that have samples in the piece; None for all rows.
    piece : Batch [m, WIDTH]
        Samples of these rows, with their weights.
    """
    if not full.y.shape[1]:
        return
    equal = full.weight is None
    weights = full.x.new_full(full.y.shape[:2], 1.0 / full.y.shape[1]) if equal else full.weight
    assert weights is not None
    parts = (part.split(WIDTH, 1) for part in (full.x, full.y, weights))
    for x, y, weight in zip(*parts, strict=True):
        rows = None if equal else (weight[:, 0] > 0).nonzero().squeeze(1)
        if rows is None or len(rows) == len(y):
            yield None, Batch(x, y, weight)
        elif len(rows):
            yield rows, Batch(x[rows], y[rows], weight[rows])


def select_rows(params: Tensors, rows: Tensor | None) -> Tensors:
    """Return rows [m] of parameters [n, *shape]; all for None."""
    return params if rows is None else {name: block[rows] for name, block in params.items()}


def add_(total: Tensor, rows: Tensor | None, part: Tensor) -> None:
    """Add [m, ...] to the rows [m] of a total [n, ...] in place; to all rows for None."""
    if rows is None:
        total += part
    else:
        total.index_add_(0, rows, part)


def get_sample_mask(batch: Batch) -> Tensor:
    """Return 1 for samples and 0 for padding, [n, B]."""
    if batch.weight is None:
        return batch.x.new_ones(batch.y.shape[:2])
    return (batch.weight > 0).to(batch.x.dtype)
