"""Kernels as matrices, and their factors as kernels. `test_network` runs low-rank convolutions."""

from __future__ import annotations

import pytest
import torch
from support.network_bench import CLOSE, F64, draw_normal

from otafl.models.kernel_matrices import roll_weight, to_kernels, unroll_weight

pytestmark = pytest.mark.exact


def test_a_plain_reshape_is_not_the_matrix() -> None:
    weight = draw_normal(1, 4, 3, 3, 3)
    wrong = weight.reshape(1, 12, 9)
    eye = torch.eye(9, dtype=F64)[None]
    for unroll in ("vertical_first", "horizontal_first"):
        torch.testing.assert_close(
            roll_weight(unroll_weight(weight, unroll), (4, 3, 3, 3), unroll), weight
        )
        first, second = to_kernels(wrong, eye, 3, unroll)
        product = torch.einsum("onrij,ormkl->onmikjl", second, first).reshape(1, 4, 3, 3, 3)
        assert (product - weight).abs().max() > weight.abs().max() / 2


def test_singular_values_of_the_two_unrollings() -> None:
    weight = draw_normal(2, 4, 3, 3, 3)
    vertical = torch.linalg.svdvals(unroll_weight(weight, "vertical_first"))
    horizontal = torch.linalg.svdvals(unroll_weight(weight, "horizontal_first"))
    turned = torch.linalg.svdvals(unroll_weight(weight.mT, "horizontal_first"))
    torch.testing.assert_close(turned, vertical, **CLOSE)
    assert (horizontal - vertical).abs().max() > 0.1
