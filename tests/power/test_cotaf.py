"""Time-varying precoding."""

from __future__ import annotations

import pytest
import torch
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
