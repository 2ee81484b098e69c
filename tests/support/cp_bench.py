"""Factors of tensors, and definitions that the tests of CP forms hold the program to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from otafl.factorised import cp

MATRIX, KERNEL = (7, 5), (3, 3, 4, 5)
BOTH = pytest.mark.parametrize(("modes", "rank"), [(MATRIX, 3), (KERNEL, 6)])


def draw_normal(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def draw_factors(seed: int, modes: tuple[int, ...], rank: int, n: int = 2) -> list[Tensor]:
    """Normal factors [n, R, I_n]."""
    return [draw_normal(100 * seed + m, n, rank, size) for m, size in enumerate(modes)]


def perturb(frame: list[Tensor], seed: int, size: float) -> list[Tensor]:
    """Factors that have drifted from others."""
    return [f + size * draw_normal(7000 + 100 * seed + m, *f.shape) for m, f in enumerate(frame)]


def compute_relative_error(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|."""
    return float((a - b).norm() / b.norm())


def unfold(matrix: Tensor, modes: Sequence[int], mode: int) -> Tensor:
    """X_(mode) [n, I_mode, prod of the others] of a tensor held as its last matrix."""
    return matrix.view(-1, *modes).movedim(mode + 1, 1).flatten(2)


def compute_derivative(frame: Sequence[Tensor], direction: Sequence[Tensor]) -> Tensor:
    """J(B) = sum_n [[A1 .. Bn .. AN]] as its last matrix, for factors B_n."""
    total = torch.zeros(())
    for mode, b in enumerate(direction):
        total = total + cp.kruskal([b if m == mode else f for m, f in enumerate(frame)])
    return total
