"""Quantisers' means and errors.

Each test states its sample and its false-alarm level; seeds are fixed. Mutations that make a test
here fail: QSGD or the fitted rounding rounding to nearest, or down; the draw shared by all reals;
one level more or fewer; the uniform quantiser's step twice as wide; a residual that is forgotten.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from otafl.codecs.config import QsgdConfig, TopKConfig
from otafl.codecs.qsgd import Qsgd
from otafl.codecs.topk import TopK
from otafl.codecs.uniform import quantise
from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams
from otafl.transport.fitted_bits import rounded

DEVICES = 4000
"""Independent draws of the same vector."""


def everyone(devices: int) -> Cohort:
    device = torch.arange(devices)
    zero = torch.zeros_like(device)
    return Cohort.fresh(zero, device, torch.ones(devices).double(), (devices,), devices)


def vector(reals: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(reals, generator=generator, dtype=torch.float64)


def qsgd(v: torch.Tensor, bits: int) -> torch.Tensor:
    """[DEVICES, n] quantised copies."""
    streams = Streams([1], [0], dtype=torch.float64)
    codec = Qsgd(QsgdConfig(bits=bits), {}, streams)
    copies = Group({"a": v.expand(DEVICES, -1)})
    (coded,), _ = codec.encode((copies,), {}, everyone(DEVICES), 0, streams)
    return coded.blocks["a"]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("reals", [4, 50])
def test_qsgd_is_unbiased_with_the_papers_variance(bits: int, reals: int) -> None:
    """Mean of 4,000 draws about v, in units of its standard error, is chi-square over the reals
    (level 1e-4); E|Q(v) - v|^2 = |v|^2 / s^2 sum p_i (1 - p_i) with p_i the fraction of s |v_i| /
    |v| above its level, within 5 standard errors; and it is within Lemma 3.1's bound."""
    v = vector(reals)
    error = qsgd(v, bits) - v
    s, norm = 2 ** (bits - 1) - 1, v.norm()
    p = (s * v.abs() / norm).frac()
    variance = norm**2 / s**2 * p * (1 - p)
    score = (error.mean(0).square() / (variance / DEVICES)).sum()
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], reals)
    assert low < score < high
    squared = error.square().sum(1)
    half = 5 * squared.std() / math.sqrt(DEVICES)
    assert (squared.mean() - variance.sum()).abs() < half
    assert squared.mean() - half < min(reals / s**2, math.sqrt(reals) / s) * norm**2
    assert variance.sum() <= min(reals / s**2, math.sqrt(reals) / s) * norm**2


def test_qsgd_draws_are_independent_over_reals() -> None:
    """Variance of the sum over 50 equal reals is 50 times that of one; chi-square over 4,000 draws,
    level 1e-4."""
    v = torch.ones(50).double()
    p = math.sqrt(1 / 50)  # one level: |v_i| / |v|
    law = 50 * 50 * p * (1 - p)
    total = (qsgd(v, 2) - v).sum(1)
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], DEVICES) / DEVICES
    assert low < total.square().mean() / law < high


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


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_uniform_error_is_a_twelfth_of_the_squared_step(bits: int) -> None:
    """Of 20,000 uniform reals; the squared error of a uniform law has relative standard deviation
    sqrt(4/5), so the mean is within 4 % in 6 standard errors."""
    generator = torch.Generator().manual_seed(bits)
    x = torch.rand(1, 20_000, generator=generator, dtype=torch.float64)
    step = (x.amax() - x.amin()) / (2**bits - 1)
    error = (quantise(x, 2**bits - 1) - x).square().mean()
    assert float(error / (step**2 / 12)) == pytest.approx(1, abs=0.04)


def test_error_feedback_bounds_what_is_left_out() -> None:
    """Stich et al., Lemma 3.3 in short: the memory of top-k of n on updates of norm G stays within
    2 n / k G, whatever the updates; without feedback what was never sent grows without bound. 400
    rounds of a fixed update whose small reals are never among the largest."""
    streams = Streams([3], [0], dtype=torch.float64)
    x = torch.full((1, 20), 0.1).double()
    x[0, :2] = 1.0
    codec, memory = TopK(TopKConfig(keep=0.1), {}, streams), {}
    memory = codec.init((Group({"a": x}),))
    sent = torch.zeros_like(x)
    for round in range(400):
        (coded,), memory = codec.encode((Group({"a": x}),), memory, everyone(1), round, streams)
        sent += coded.blocks["a"]
        assert memory["rest/0"].norm() <= 2 * 20 / 2 * x.norm()
    torch.testing.assert_close(sent / 400, x, rtol=0, atol=2 * 20 / 2 * float(x.norm()) / 400)
    assert (sent[0, 2:] > 0).all()
