"""The uniform quantiser's error.

Mutations that make a test here fail: its step twice as wide.
"""

from __future__ import annotations

import pytest
import torch
from support.codec_bench import quantised

pytestmark = pytest.mark.law


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_uniform_error_is_a_twelfth_of_the_squared_step(bits: int) -> None:
    """Of 20,000 uniform reals; the squared error of a uniform law has relative standard deviation
    sqrt(4/5), so the mean is within 4 % in 6 standard errors."""
    generator = torch.Generator().manual_seed(bits)
    x = torch.rand(1, 20_000, generator=generator, dtype=torch.float64)
    step = (x.amax() - x.amin()) / (2**bits - 1)
    error = (quantised(x, bits) - x).square().mean()
    assert float(error / (step**2 / 12)) == pytest.approx(1, abs=0.04)
