"""Singular values of batches: faulty matrices, and Jacobi rotations against LAPACK."""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor

from otafl.factorised.decomposition import MAX_COLUMNS, decompose_by_rotations, svd

pytestmark = pytest.mark.exact


def some(count: int = 3, rows: int = 5, columns: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, rows, columns, generator=generator)


@pytest.mark.parametrize(
    ("value", "full", "side"), [(float("nan"), True, 3), (float("inf"), False, 40)]
)
def test_one_that_is_not_finite_leaves_the_others_alone(
    value: float, full: bool, side: int
) -> None:
    whole = some(3, side, side)
    broken = whole.clone()
    broken[1, 0, 1] = value
    parts, expected = svd(broken, full), torch.linalg.svd(whole, full_matrices=full)
    assert parts[1][1].isnan().all()
    for part, like in zip(parts, expected, strict=True):
        assert_agree(part[[0, 2]], like[[0, 2]])


def test_where_single_precision_stops_double_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MKL's sgesdd does at some sound matrices; the others are as before."""
    real, matrix = torch.linalg.svd, some()

    def stops(given: Tensor, full_matrices: bool) -> tuple[Tensor, ...]:
        if given.dtype == torch.float32 and bool((given == matrix[2]).flatten(-2).all(-1).any()):
            raise torch.linalg.LinAlgError("did not converge")
        return real(given, full_matrices=full_matrices)

    expected = real(matrix, full_matrices=False)
    monkeypatch.setattr(torch.linalg, "svd", stops)
    u, s, vt = svd(matrix, full_matrices=False)
    for part, like in zip((u, s, vt), expected, strict=True):
        assert part.dtype == torch.float32
        assert_agree(part[:2], like[:2])
    torch.testing.assert_close(u[2] * s[2] @ vt[2], matrix[2])
    exact = real(matrix[2].double(), full_matrices=False)[1]
    assert_agree(s[2], exact.float())
    monkeypatch.setattr(Tensor, "double", lambda given: given)
    with pytest.raises(torch.linalg.LinAlgError):
        svd(matrix, full_matrices=False)


ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}


def make(kind: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rows)
    a = torch.randn(30, rows, columns, generator=generator, dtype=torch.float64)
    if kind == "graded":
        a = a * torch.logspace(0, -6, columns, dtype=torch.float64)
    if kind == "nearly equal":
        a = torch.linalg.qr(a)[0] * torch.logspace(0, -1e-6, columns, dtype=torch.float64)
    if kind == "wide":
        a = a.mT
    return a.to(dtype)


@pytest.mark.parametrize(
    ("columns", "kind", "dtype"),
    [
        (3, "graded", torch.float64),
        (8, "nearly equal", torch.float32),
        (MAX_COLUMNS, "wide", torch.float64),
    ],
)
def test_same_as_lapack(columns: int, kind: str, dtype: torch.dtype) -> None:
    for rows in (columns, 3 * columns):
        a = make(kind, rows, columns, dtype)
        u, s, vt = decompose_by_rotations(a)
        most = ROUNDING[dtype]
        of_library = torch.linalg.svdvals(a.double())
        assert (s - of_library).abs().max() <= most * s.max()
        assert ((u * s[:, None]) @ vt - a).abs().max() <= most * s.max()
        one = torch.eye(columns, dtype=dtype)
        assert (vt @ vt.mT - one).abs().max() <= most
        assert (u.mT @ u - one).abs().max() <= most
        assert (s.diff(dim=1) <= 0).all()


def test_a_faulty_matrix_spoils_no_other() -> None:
    a = make("normal", 4, 4, torch.float64)
    alone = decompose_by_rotations(a)
    a[3, 1, 2], a[5] = torch.nan, 0.0
    u, s, vt = decompose_by_rotations(a)
    assert s[3].isnan().all()
    assert (s[5] == 0).all()
    assert (u[5] == 0).all()
    others = [i for i in range(len(a)) if i not in (3, 5)]
    for found, exact in zip((u, s, vt), alone, strict=True):
        assert_agree(found[others], exact[others])
