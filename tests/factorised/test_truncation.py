"""Truncated factors of matrices, and coordinates of changes in them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from otafl.factorised import truncation
from otafl.factorised.truncation import Factors

pytestmark = pytest.mark.exact

DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=DOUBLE, generator=generator)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def first(factors: Factors, rank: int) -> Factors:
    """Return those of a smaller rank."""
    return Factors(factors.left[:, :, :rank], factors.right[:, :rank])


def test_truncation_is_the_best_and_repeats_itself() -> None:
    """F2, F5: the tail's energy is lost, factors of smaller rank are a prefix, and a product
    factored again gives the same factors up to signs."""
    matrix = normal(3, 9, 7)
    s = torch.linalg.svdvals(matrix)
    wide = truncation.factorise(matrix, 6)
    for rank in (1, 3, 6):
        narrow = truncation.factorise(matrix, rank)
        close(narrow.product, first(wide, rank).product)
        for a, b in zip(narrow, first(wide, rank), strict=True):
            close(a.abs(), b.abs())
        lost = (matrix - narrow.product).square().sum((1, 2))
        torch.testing.assert_close(lost, s[:, rank:].square().sum(1), rtol=1e-10, atol=0)
        close(truncation.factorise(narrow.product, rank).product, narrow.product)
        close(narrow.left.mT @ narrow.left, narrow.right @ narrow.right.mT)  # balanced
    close(truncation.singular_values(wide), s[:, :6])


def test_coordinates_are_the_tangent_projection() -> None:
    """Of a change of any kind, idempotent, self-adjoint by its size, and of smaller rank in the
    first coordinates; the pair is the shortest."""
    wide = truncation.factorise(normal(2, 9, 7), 5)
    frame = truncation.compute_singular_vectors(wide)
    close(frame.left.mT @ frame.left, torch.eye(5, dtype=DOUBLE).expand(2, -1, -1))
    change = normal(2, 9, 7, seed=1)
    pair = truncation.compute_matrix_coordinates(frame, change)
    projected = truncation.expand_coordinates(frame, pair)
    u, v = frame.left @ frame.left.mT, frame.right.mT @ frame.right
    close(projected, u @ change + change @ v - u @ change @ v)
    again = truncation.compute_matrix_coordinates(frame, projected)
    close(again.left, pair.left)
    close(again.right, pair.right)
    close(frame.left.mT @ pair.left, pair.right @ frame.right.mT)  # the overlap is shared evenly
    old = first(wide, 3)
    new = Factors(old.left + normal(2, 9, 3, seed=2), old.right + normal(2, 3, 7, seed=3))
    thin = truncation.compute_factor_coordinates(truncation.compute_singular_vectors(old), old, new)
    whole = truncation.compute_matrix_coordinates(
        truncation.compute_singular_vectors(old), new.product - old.product
    )
    close(thin.left, whole.left)
    close(thin.right, whole.right)
    padded = Factors(
        torch.nn.functional.pad(thin.left, (0, 2)),
        torch.nn.functional.pad(thin.right.mT, (0, 2)).mT,
    )
    close(
        truncation.expand_coordinates(frame, padded),
        truncation.expand_coordinates(truncation.compute_singular_vectors(old), thin),
    )


def test_directions_without_a_singular_value_are_no_part_of_the_frame() -> None:
    matrix = normal(1, 9, 2) @ normal(1, 2, 7, seed=1)
    frame = truncation.compute_singular_vectors(truncation.factorise(matrix, 4))
    assert not frame.left[:, :, 2:].any()
    assert not frame.right[:, 2:].any()
    change = normal(1, 9, 7, seed=2)
    pair = truncation.compute_matrix_coordinates(frame, change)
    first = truncation.compute_singular_vectors(truncation.factorise(matrix, 2))
    expected = truncation.expand_coordinates(
        first, truncation.compute_matrix_coordinates(first, change)
    )
    close(truncation.expand_coordinates(frame, pair), expected)


def test_ranks() -> None:
    assert truncation.compute_rank(0.01, 8, (24, 24)) == 1
    assert truncation.compute_rank(0.3, 8, (24, 24)) == 2
    assert truncation.compute_rank(0.9, 64, (192, 27)) == 27
