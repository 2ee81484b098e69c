"""Policies that invert the channel, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from support.power_links import (
    HYPER,
    N,
    compute_received_gain,
    draw_fading,
    make_link,
    make_plain_link,
    make_policy,
    perturb,
    solve,
)

from otafl.core.contracts import Link


def make_three(transmit: list[bool]) -> Link:
    """h = 2, 1j, 0.1, P = 2, 3, 5 and m = 1, 4, 1, so P |h|^2 / m = 8, 0.75 and 0.05."""
    row = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
    return Link(
        h=torch.tensor([[[2.0, 1j, 0.1]]], dtype=torch.complex128),
        gain=torch.ones_like(row),
        budget=row,
        symbol_power=torch.tensor([[[1.0, 4.0, 1.0]]], dtype=torch.float64),
        noise_variance=N * torch.ones(1, dtype=torch.float64),
        transmit_mask=torch.tensor([transmit]),
        is_linear=True,
        hyper={},
    )


@pytest.mark.exact
@pytest.mark.parametrize(
    ("transmit", "eta"), [([True, True, True], 0.05), ([True, True, False], 0.75)]
)
def test_the_weakest_transmitter_sets_the_level(transmit: list[bool], eta: float) -> None:
    link = make_three(transmit)
    got = solve(make_policy("ci"), link)
    assert got.eta.item() == pytest.approx(eta, rel=1e-12)
    gains = (link.h * got.p / got.eta.sqrt()[..., None])[0, 0]
    expected = torch.tensor([1.0 if one else 0.0 for one in transmit], dtype=torch.complex128)
    torch.testing.assert_close(gains, expected, rtol=0, atol=1e-12)
    spent = got.p.abs().square() * link.symbol_power
    assert (spent[0] <= link.budget * (1 + 1e-12)).all()


@pytest.mark.exact
def test_multi_antenna_ci_is_ci_behind_the_combiner() -> None:
    """With one antenna, and with the scalar channel of any f; it asks for uniform forcing."""
    link = make_link(5)
    one, other = (solve(make_policy(name), link) for name in ("ci", "multi_antenna_ci"))
    torch.testing.assert_close(one.p, other.p)
    torch.testing.assert_close(one.eta, other.eta)
    assert make_policy("multi_antenna_ci").receiver == "uniform_forcing"
    assert make_policy("multi_antenna_ci").is_inversion


@pytest.mark.exact
def test_none_arrives_without_distortion_at_the_mean_noise() -> None:
    link = make_link(1)
    got = solve(make_policy("genie"), link)
    assert make_policy("genie").power_constraint == "none"
    there = link.transmit_mask[:, None]
    torch.testing.assert_close(compute_received_gain(link, got), there.double().expand(-1, 2, -1))
    received = (link.budget[:, None] * link.h.abs().square() * there).sum(-1)
    torch.testing.assert_close(got.eta, received / (link.symbol_power * there).sum(-1))


@pytest.mark.exact
def test_tci_silence_and_peak_power() -> None:
    """Devices below the threshold are silent, those just above it are above their budget on
    average constraints, and at it under a peak constraint."""
    link = make_link(8, spread=False)
    link = perturb(link, budget=link.budget[:, :1].expand_as(link.budget))
    weak = torch.full_like(link.h, math.sqrt(HYPER["threshold"]) * 1.0001j)
    weak[..., 0] *= 0.999
    for constraint, least, most in (("average", 1.2, math.inf), ("peak", 0.999, 1.0)):
        policy = make_policy("tci", constraint=constraint, relative=False)
        got = solve(policy, perturb(link, h=weak))
        assert not got.active_mask[..., 0].any()
        used = (got.p.abs().square() / link.budget[:, None])[got.active_mask]
        assert ((used > least) & (used <= most)).all()


@pytest.mark.exact
def test_tci_peak_refuses_averages() -> None:
    with pytest.raises(ValueError, match="constraint: peak bounds each device"):
        make_policy("tci", constraint="peak", reference="mean")


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
