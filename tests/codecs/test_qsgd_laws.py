"""QSGD's mean and error.

Each test states its sample and its false-alarm level; seeds are fixed. Mutations that make a test
here fail: rounding to nearest, or down; the draw shared by all reals; one level more or fewer.
"""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from otafl.codecs.qsgd import Qsgd
from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams

pytestmark = pytest.mark.law


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
    codec = Qsgd(Qsgd.Settings(bits=bits), {}, streams)
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
