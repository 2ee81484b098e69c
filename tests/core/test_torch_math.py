"""Functions of torch's library that compiled loops call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.exact


@pytest.fixture
def loops() -> Any:
    """The module of the loops, which imports Numba."""
    from support import torch_math_loops

    if not torch_math_loops.torch_math.link_library():
        pytest.skip("torch's library has no MKL")
    return torch_math_loops


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_products_in_each_layout(loops: Any, a_turned: bool, b_turned: bool) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3), (5, 3)))
    given_a = np.ascontiguousarray(a if a_turned else a.T)
    given_b = np.ascontiguousarray(b if b_turned else b.T)
    out = np.ascontiguousarray(c.T)
    loops.multiply(given_a, given_b, out, a_turned, b_turned, np.float32(-2.0))
    np.testing.assert_allclose(out.T, c - 2.0 * a @ b, rtol=1e-5, atol=1e-5)


def test_exponentials_agree_with_torch(loops: Any) -> None:
    """Of numbers that overflow, that become subnormal, and that are not finite."""
    values = torch.linspace(-110.0, 90.0, 1001)
    values[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    expected = values.exp()
    loops.exponentiate(values.numpy())
    smallest = 2.0**-149
    found, expected = values.double(), expected.double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2 * smallest, equal_nan=True)


def test_a_prefetch_changes_nothing(loops: Any) -> None:
    assert loops.add(np.arange(10.0)) == 45.0
