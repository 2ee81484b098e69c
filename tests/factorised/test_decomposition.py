"""Singular values of batches in which some matrices cannot be decomposed."""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor

from otafl.factorised.decomposition import svd

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
