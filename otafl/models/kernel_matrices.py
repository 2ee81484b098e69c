"""Kernels of convolutions as matrices, for low-rank convolutions.

A low-rank convolution is two convolutions with nothing between them (FedHM, section 2.2): its
kernel W [out, in, k1, k2], as the matrix of `unroll_weight`, is L R. First come the kernels of R,
then those of L.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from otafl.models.step_contract import Unroll


def to_kernels(left: Tensor, right: Tensor, k: int, unroll: Unroll) -> tuple[Tensor, Tensor]:
    """Return the two kernels of a low-rank convolution.

    Parameters
    ----------
    left : Tensor [n, out k, r]
        Left factor.
    right : Tensor [n, r, in k]
        Right factor.
    k : int
        Side of the window.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, r, in, k, 1]
        First kernels, [n, r, in, 1, k] for horizontal_first.
    Tensor [n, out, r, 1, k]
        Second kernels, [n, out, r, k, 1] for horizontal_first.
    """
    n, _, r = left.shape
    first = right.view(n, r, -1, k)
    second = left.view(n, -1, k, r).transpose(2, 3)
    if unroll == "vertical_first":
        return first[..., None], second[..., None, :]
    return first[..., None, :], second[..., None]


def unroll_weight(weight: Tensor, unroll: Unroll) -> Tensor:
    """Reshape a step's weight to matrices.

    Parameters
    ----------
    weight : Tensor [n, out, in, k1, k2], or [n, in, out]
        Weight of a convolution or a linear layer.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, out k, in k], or [n, out, in]
        Matrices with rows (out, k2) and columns (in, k1); k1 and k2 exchanged for horizontal_first.
    """
    if weight.dim() < 5:  # one leading dimension
        return weight.mT
    n, out, inputs, k, _ = weight.shape
    order = (0, 1, 4, 2, 3) if unroll == "vertical_first" else (0, 1, 3, 2, 4)
    return weight.permute(order).reshape(n, out * k, inputs * k)


def roll_weight(matrix: Tensor, shape: Sequence[int], unroll: Unroll) -> Tensor:
    """Reshape matrices to a step's weight, inverting `unroll_weight`.

    Parameters
    ----------
    matrix : Tensor [n, out k, in k], or [n, out, in]
        Matrices.
    shape : sequence of int
        Shape of the weight.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows.

    Returns
    -------
    Tensor [n, *shape]
        Weight.
    """
    if len(shape) < 4:
        return matrix.mT
    out, inputs, k, _ = shape
    parts = matrix.reshape(-1, out, k, inputs, k)
    order = (0, 1, 3, 4, 2) if unroll == "vertical_first" else (0, 1, 3, 2, 4)
    return parts.permute(order).contiguous()
