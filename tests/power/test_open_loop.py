"""Fractional compensation of the path loss."""

from __future__ import annotations

import pytest
import torch
from support.power_links import draw_fading, make_plain_link, make_policy, solve

pytestmark = pytest.mark.exact


def test_open_loop_is_the_3gpp_formula_of_sionna() -> None:
    """One resource block, path losses of 70 to 130 dB, noise of -120 dBm: watts as Sionna's."""
    from otafl.channels.fading import keep_global_state

    with keep_global_state():
        from sionna.sys import open_loop_uplink_power_control

    noise_dbm, p0_dbm, max_dbm = -120.0, -80.0, 23.0
    loss_db = torch.linspace(70, 130, 13).double()[None]
    gain = 10 ** (-loss_db / 10)
    for alpha in (0.0, 0.5, 0.8, 1.0):
        hyper = {"alpha": torch.tensor([alpha]), "p0_db": torch.tensor([p0_dbm - noise_dbm])}
        link = make_plain_link(
            draw_fading(1, 13) * gain.sqrt(),
            10 ** ((max_dbm - noise_dbm) / 10),
            gain=gain,
            hyper={name: value.double() for name, value in hyper.items()},
            symbol_power=torch.full((1, 1, 13), 0.3).double(),
        )
        got = solve(make_policy("open_loop"), link)
        watts = (got.p.abs().square() * link.symbol_power)[0, 0] * 10 ** ((noise_dbm - 30) / 10)
        sionna = open_loop_uplink_power_control(
            1 / gain[0],
            torch.full((13,), 12),
            alpha=alpha,
            p0_dbm=p0_dbm,
            ut_max_power_dbm=max_dbm,
            precision="double",
        )
        torch.testing.assert_close(watts, sionna.to(watts), rtol=1e-6, atol=0)


def test_open_loop_ignores_fading_and_compensates_fully_at_one() -> None:
    """alpha = 1 below the budget: all devices are received at P_0 on average over fading."""
    gain = torch.tensor([[1e-3, 1e-2, 0.1, 1.0]], dtype=torch.float64)
    hyper = {"alpha": torch.ones(1).double(), "p0_db": torch.full((1,), 10.0).double()}
    powers = []
    for seed in range(3):
        h = draw_fading(1, 4, seed=seed) * gain.sqrt()
        got = solve(make_policy("open_loop"), make_plain_link(h, 1e6, gain=gain, hyper=hyper))
        powers.append(got.p.abs().square()[:, 0])
        torch.testing.assert_close(powers[-1] * gain, torch.full((1, 4), 10.0).double())
    torch.testing.assert_close(powers[0], powers[1])
