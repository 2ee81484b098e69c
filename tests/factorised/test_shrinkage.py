"""Proximal maps: thresholds on singular values and on entries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from twins import baselines as twin

from otafl.factorised.shrinkage import (
    keep_largest,
    soft_threshold,
    threshold_singular_values,
)

pytestmark = pytest.mark.exact


def test_shrinkage_by_hand() -> None:
    """Fact 19 of the specification, and both threshold shapes; ties are pruned to the count."""
    two = torch.tensor([1.5, 0.5])
    diagonal = torch.diag_embed(torch.tensor([[3.0, 1.0], [3.0, 1.0]]))
    expected = torch.diag_embed(torch.tensor([[1.5, 0.0], [2.5, 0.5]]))
    torch.testing.assert_close(
        threshold_singular_values(diagonal, two), expected, rtol=0, atol=1e-6
    )
    row = torch.tensor([[3.0, -1.0], [-3.0, 1.0]])
    torch.testing.assert_close(
        soft_threshold(row, torch.tensor(2.0)), torch.tensor([[1.0, 0], [-1, 0]])
    )
    each = torch.tensor([[2.0], [0.5]])
    torch.testing.assert_close(soft_threshold(row, each), torch.tensor([[1.0, 0], [-2.5, 0.5]]))
    pruned = keep_largest(torch.tensor([[1.0, -5.0, 2.0, 4.0], [7.0, 7.0, -7.0, 7.0]]), 2)
    assert pruned[0].tolist() == [0.0, -5.0, 0.0, 4.0]
    assert int(torch.count_nonzero(pruned[1])) == 2


@pytest.mark.parametrize(
    ("shape", "threshold", "dtype", "tolerance"),
    [
        ((40, 17), 1e-4, torch.float64, 1e-12),
        ((17, 40), 0.3, torch.float32, 1e-5),
        ((30, 1), 20.0, torch.float64, 1e-12),
    ],
)
def test_svt_against_an_svd(
    shape: tuple[int, int], threshold: float, dtype: torch.dtype, tolerance: float
) -> None:
    """Relative to the largest singular value; one matrix of rank one, one that is small, and one of
    singular values from 1 to 1e-5."""
    rng = np.random.default_rng(1)
    exact = rng.standard_normal((4, *shape)) / 4.0
    exact[1] = np.outer(exact[1, :, 0], exact[1, 0])  # all but one singular value zero
    exact[2] *= 1e-3
    u, spread, vt = np.linalg.svd(exact[3], full_matrices=False)
    exact[3] = u @ np.diag(np.geomspace(1.0, 1e-5, len(spread))) @ vt
    ours = threshold_singular_values(
        torch.from_numpy(exact).to(dtype), torch.full((4,), threshold, dtype=dtype)
    )
    assert ours.dtype == dtype
    assert ours.is_contiguous()
    for own, matrix in zip(ours.double().numpy(), exact, strict=True):
        scale = float(np.linalg.norm(matrix, 2))
        np.testing.assert_allclose(own, twin.svt(matrix, threshold), rtol=0, atol=tolerance * scale)
