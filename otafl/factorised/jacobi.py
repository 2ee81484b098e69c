"""Singular value decompositions of many small matrices that never wait for a GPU.

A library's decomposition asks the GPU whether it went well. One-sided Jacobi rotations are the same
operations for every matrix: the number of sweeps is fixed, and n / 2 pairs of columns are rotated
at once. So they fit in a CUDA graph.

References
----------
Demmel and Veselic 1992, "Jacobi's Method is More Accurate than QR".
Brent and Luk 1985, "The Solution of Singular-Value and Symmetric Eigenvalue Problems on
    Multiprocessor Arrays", for the order of the pairs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

MAX_COLUMNS = 16
"""Largest number of columns. The time grows with its square."""

MAX_GRAPHS = 16
"""Shapes of matrices whose recorded decomposition is kept."""

MIN_SWEEPS = 5
"""Sweeps over all pairs, and one more for each doubling of the columns.

With fewer, columns of normal, graded and nearly equal singular values are not yet orthogonal to
rounding in float64 (at 2 to 16 columns).
"""


def fits(matrix: Tensor) -> bool:
    """Return whether matrices [n, a, b] are small enough."""
    return 0 < min(matrix.shape[-2:]) <= MAX_COLUMNS


def decompose(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute U, s and V^T of each matrix.

    Parameters
    ----------
    matrix : Tensor [n, a, b]
        Matrices. One that is not finite has only results of NaN.

    Returns
    -------
    Tensor [n, a, r], Tensor [n, r], Tensor [n, r, b]
        U, s in decreasing order and V^T with r = min(a, b). Columns of U are orthonormal where s is
        above rounding, and elsewhere they are not completed to a basis.

    Notes
    -----
    Columns x and y of A are rotated by the angle atan(2 x.y / (|x|^2 - |y|^2)) / 2, after which
    they are orthogonal, and those of V with them. Then A V = U diag(s).
    """
    rows, columns = matrix.shape[-2:]
    if rows < columns:
        v, s, ut = decompose(matrix.mT)
        return ut.mT, s, v.mT
    tiny = torch.finfo(matrix.dtype).tiny
    scale = matrix.abs().amax((1, 2)).clamp_min(tiny)  # so that no square is too small or large
    pairs = (columns + 1) // 2
    one = torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    w = torch.cat(
        [matrix.mT / scale[:, None, None], one.expand(len(matrix), -1, -1)], 2
    )  # columns of A over those of V
    if columns % 2:
        w = torch.nn.functional.pad(w, (0, 0, 0, 1))
    order = _get_order(pairs, matrix.device)
    sweeps = MIN_SWEEPS + (2 * pairs - 1).bit_length()
    for _ in range(sweeps * max(1, 2 * pairs - 1)):
        pair = w.view(-1, 2, w.shape[2])
        own = pair[:, :, :rows]
        gram = torch.bmm(own, own.mT)
        apart = gram[:, 0, 0] - gram[:, 1, 1]
        angle = (2.0 * gram[:, 0, 1] / (apart + tiny)).atan_().mul_(0.5)
        c, s = angle.cos(), angle.sin_()
        turn = torch.stack([c, s, -s, c], 1).view(-1, 2, 2)
        w = torch.bmm(turn, pair).view_as(w).index_select(1, order)
    norm = w[:, :, :rows].norm(dim=2)
    s, place = norm.sort(dim=1, descending=True)
    s, place = s[:, :columns], place[:, :columns, None].expand(-1, -1, w.shape[2])
    w = w.gather(1, place)
    u = w[:, :, :rows] / s.clamp_min(tiny)[:, :, None]
    return u.mT, s * scale[:, None], w[:, :, rows:]


def decompose_at_once(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `decompose` on a GPU, launched as one CUDA graph for each shape of matrices.

    Its operations are launched one by one within another graph, where waits are looked for, as in
    the rehearsal of such a graph, and on a processor without graphs.
    """
    if matrix.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return decompose(matrix)
    if torch.cuda.get_sync_debug_mode():  # recording a graph waits for the GPU
        return decompose(matrix)
    uses = _get_uses(matrix.shape, matrix.dtype, matrix.device)
    if not uses.graph and not uses.is_repeated:
        uses.is_repeated = True  # the next matrices of the shape are worth a graph
        return decompose(matrix)
    known = uses.graph = uses.graph or _record(matrix)
    known.matrix.copy_(matrix)
    known.graph.replay()
    u, s, vt = known.result
    return u.clone(), s.clone(), vt.clone()


class _Graph(NamedTuple):
    """Recorded decomposition, with its input and result."""

    graph: torch.cuda.CUDAGraph
    matrix: Tensor
    result: tuple[Tensor, Tensor, Tensor]


@dataclass
class _Uses:
    """Whether matrices of a shape came before, and the graph for them."""

    is_repeated: bool = False
    graph: _Graph | None = None


@functools.lru_cache(maxsize=MAX_GRAPHS)
def _get_uses(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> _Uses:
    """Return the uses of matrices of a shape, so far none."""
    return _Uses()


def _record(matrix: Tensor) -> _Graph:
    """Record the decomposition of matrices like these."""
    matrix = torch.empty_like(matrix)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = decompose(matrix)
    return _Graph(graph, matrix, result)


@functools.cache
def _get_order(pairs: int, device: torch.device) -> Tensor:
    """Return the places from which the columns come before the next rotations, int64 [2 pairs].

    Pairs are neighbours. The first column stays, and the others move round it, so that every two
    meet once in 2 pairs - 1 rotations.
    """
    upper, lower = list(range(0, 2 * pairs, 2)), list(range(1, 2 * pairs, 2))
    if pairs > 1:
        upper, lower = [upper[0], lower[0], *upper[1:-1]], [*lower[1:], upper[-1]]
    places = [at for both in zip(upper, lower, strict=True) for at in both]
    return torch.tensor(places, device=device)
