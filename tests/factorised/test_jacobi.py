"""Decompositions by Jacobi rotations, compared with LAPACK's."""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor

from otafl.factorised.decomposition import MAX_COLUMNS, decompose_by_rotations

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
