"""The fitted rounding's mean and error; the sample and the false-alarm level are said, the seed is
fixed.

Mutations that make a test here fail: rounding to nearest, or down; one level more or fewer.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.uplink.digital.fitted_bits import rounded

pytestmark = pytest.mark.law


DEVICES = 4000
"""Independent draws of the same vector."""


def vector(reals: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(reals, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("bits", [1, 3, 10])
def test_fitted_rounding_is_unbiased(bits: int) -> None:
    """As for QSGD, with the step between the extremes; these two are exact."""
    v = vector(30, 1)
    draw = Streams([2], [0], dtype=torch.float64).uniform("draw", 0, (DEVICES, 30))[0]
    error = rounded(v.expand(DEVICES, -1), torch.full((DEVICES,), float(bits)), draw) - v
    step = (v.amax() - v.amin()) / (2**bits - 1)
    p = ((v - v.amin()) / step).frac()
    inner = (v > v.amin()) & (v < v.amax())
    variance = (step**2 * p * (1 - p))[inner]
    assert error[:, ~inner].abs().max() < 1e-12
    score = (error[:, inner].mean(0).square() / (variance / DEVICES)).sum()
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], 28)
    assert low < score < high
    squared = error.square().sum(1)
    half = 5 * squared.std() / math.sqrt(DEVICES)
    assert (squared.mean() - variance.sum()).abs() < half
