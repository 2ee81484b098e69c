"""The server's converter, interference and jamming."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from support.impaired_bench import K, deliver, make_impaired
from support.link_bench import draw_updates, make_bench, make_cohort

from otafl.core.contracts import Group
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.noise import draw_variance

pytestmark = pytest.mark.exact


def test_converter() -> None:
    """Mid-rise levels of Re(y), full scale 3 root mean squares of the payload; with many bits and a
    wide range nothing changes."""
    exact, _, _ = deliver(make_impaired(make_bench("full", (0, 1)), adc_bits=16, adc_range=20.0))
    plain = deliver(make_bench("full", (0, 1)))[0]
    np.testing.assert_allclose(exact, plain, atol=2e-3 * np.abs(plain).max())
    got, _, report = deliver(make_impaired(make_bench("full", (0, 1)), adc_bits=3))
    for s in range(2):
        y = plain[s] * K * math.sqrt(report.saved_tensors["eta/0"][s, 0])
        top = 3 * math.sqrt((y**2).mean())
        step = top / 4
        level = np.clip(np.floor(y / step), -4, 3)
        expected = (level + 0.5) * step / K / math.sqrt(report.saved_tensors["eta/0"][s, 0])
        np.testing.assert_allclose(got[s], expected, rtol=1e-6)


def test_interference_is_noise_of_a_fading_power() -> None:
    """Three interferers at 10 dB: N (1 + 10 sum |g_j|^2) in a round, N (1 + 30) as the policy
    expects. The ratio of the error to the saved variance is chi-square over 20,000 symbols, level
    1e-4; over 400 rounds the variance's mean is 31 N within 5 standard errors."""
    link = make_impaired(make_bench("ci", fading=False), interference_db=10.0)
    x = draw_updates(K, 20_000)
    received, report = link.deliver((Group({"a": x}),), make_cohort(), 1)
    error = (received.mean[0]["a"] - x.mean(0)).square().sum() * K**2
    ratio = (
        error * report.saved_tensors["eta/0"][0, 0] / report.saved_tensors["noise/0"][0, 0]
    ).item()
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], 20_000)
    assert low < ratio < high
    impairments = link.transport.parts.alignment.impairments
    assert impairments.known_noise.tolist() == pytest.approx([15.5])
    f = torch.ones(1, 1, 1, dtype=torch.complex128)
    drawn = torch.stack([draw_variance(impairments, f, t)[0, 0] for t in range(400)]) / 0.5
    assert abs(drawn.mean().item() - 31.0) < 5 * 10 * math.sqrt(3) / 20


def test_jammer_is_not_expected() -> None:
    size = 1
    link = make_bench("ci", fading=False)
    made = Impairments(
        [Impairments.Settings()] * size, torch.tensor([100.0]).double(), link.streams
    )
    f = torch.ones(1, 1, 1, dtype=torch.complex128)
    assert made.known_noise.tolist() == [0.5]
    drawn = torch.stack([draw_variance(made, f, t)[0, 0] for t in range(400)]) / 0.5
    assert abs(drawn.mean().item() - 101.0) < 5 * 100 / 20
