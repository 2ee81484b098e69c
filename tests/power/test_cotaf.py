"""Time-varying precoding."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from support.fading_runs import DEVICES, LEVEL, STATES, run
from support.power_links import N, draw_fading, make_plain_link, make_policy, solve


@pytest.mark.exact
def test_cotaf_noise_falls_as_updates_shrink() -> None:
    """Noise of the mean of K_a devices, N / (K_a^2 alpha h_min^2) with alpha = P / max m: over
    rounds of a tenth of the amplitude it falls by a hundred."""
    h, h_min, budget = draw_fading(4, 10), 0.5, 8.0
    for m in (1.0, 0.01, 1e-4):
        power = m * torch.linspace(0.3, 1.0, 10).double().expand(4, 1, 10)
        hyper = {"h_min": torch.full((4,), h_min).double()}
        link = make_plain_link(h, budget, symbol_power=power, hyper=hyper)
        got = solve(make_policy("cotaf"), link)
        on_air = (h.abs() >= h_min).sum(1)
        assert torch.equal(got.active_mask.sum(-1)[:, 0], on_air)
        noise = N / got.eta[:, 0] / on_air**2
        torch.testing.assert_close(noise, N * m / (on_air.double() ** 2 * budget * h_min**2))
        used = got.p.abs().square() * power / budget
        assert used.max() <= 1 + 1e-12


@pytest.mark.law
@pytest.mark.parametrize("variance", [0.0, 0.25])
def test_cotaf_silent_fraction(variance: float) -> None:
    """1 - exp(-h_min^2), the threshold being on the amplitude: binomial, of 160,000 draws, at a
    false-alarm level of 1e-4."""
    _, _, got = run(make_policy("cotaf"), variance=variance, threshold=0.5)
    silent = int((~got.active_mask).sum())
    share = 1 - math.exp(-0.25 / (1 + variance))
    assert stats.binomtest(silent, STATES * DEVICES, share).pvalue > LEVEL
