"""Facts that all power policies share."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support.power_links import (
    SEGMENTS,
    compute_received_gain,
    make_link,
    make_policy,
    perturb,
    solve,
    to_single_precision,
)
from support.sheet_twins import TWINS

from otafl.core import registry

pytestmark = pytest.mark.exact

ALL = (
    {name: make_policy(name) for name in registry.list_names("power")}
    | {name: policy for name, (policy, _) in TWINS.items()}
    | {"cao_average": make_policy("cao_average", draws=64)}
)
PEAK = [name for name, policy in ALL.items() if policy.power_constraint == "peak"]

SCALE_POLICIES = ["genie", "full", "ci", "cao_static", "smcv", "blind", "open_loop", "gbma", "tci"]


def test_every_policy_is_here() -> None:
    """And has tests of its own."""
    assert set(registry.list_names("power")) <= set(ALL)
    for name in registry.list_names("power"):
        assert Path(__file__).with_name(f"test_{name}.py").exists()


@pytest.mark.parametrize("name", ALL)
def test_single_precision_agrees(name: str) -> None:
    link = make_link(3)
    got, expected = solve(ALL[name], to_single_precision(link)), solve(ALL[name], link)
    torch.testing.assert_close(got.p, expected.p, rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(got.eta, expected.eta, rtol=2e-5, atol=0)


@pytest.mark.parametrize("name", PEAK)
def test_peak_policies_are_within_every_budget(name: str) -> None:
    """|p|^2 m <= P for every device and segment. `full` meets it with equality, `ci`, `gbma` and
    `blind` for exactly one device of a segment, and the optimal policies for at least one."""
    for seed in range(5):
        link = make_link(seed)
        used = solve(ALL[name], link).p.abs().square() * link.symbol_power / link.budget[:, None]
        assert used.max() <= 1 + 1e-9
        tight = ((used - 1).abs() < 1e-9).sum(-1)
        if name == "full":
            assert torch.equal(tight, link.transmit_mask.sum(-1)[:, None].expand_as(tight))
        elif name in ("ci", "multi_antenna_ci", "gbma", "blind"):
            assert (tight == 1).all()
        elif name in ("cao_static", "smcv"):
            assert (tight >= 1).all()


@pytest.mark.parametrize("name", ALL)
def test_who_does_not_send_is_silent(name: str) -> None:
    """Neither on air nor in the way: the others' scalars depend neither on its channel nor on its
    symbols."""
    link = make_link(2)
    got = solve(ALL[name], link)
    off = ~link.transmit_mask[:, None].expand(-1, SEGMENTS, -1)
    assert (got.p[off] == 0).all()
    assert not got.active_mask[off].any()
    for factor in (1e-6, 1e3):
        faded = perturb(
            link,
            h=torch.where(off, factor * link.h, link.h),
            symbol_power=torch.where(off, factor * link.symbol_power, link.symbol_power),
        )
        other = solve(ALL[name], faded)
        torch.testing.assert_close(other.p, got.p)
        torch.testing.assert_close(other.eta, got.eta)


@pytest.mark.parametrize("name", ALL)
def test_scaled_symbols_change_nothing_that_arrives(name: str) -> None:
    """Ten times the amplitude: a tenth of p, and c as before; of a policy with its own scale they
    differ."""
    link = make_link(11)
    got, other = (
        solve(ALL[name], perturb(link, symbol_power=f * link.symbol_power)) for f in (1.0, 100.0)
    )
    if not ALL[name].scale_invariant:
        assert not torch.allclose(
            compute_received_gain(link, other), compute_received_gain(link, got)
        )
        return
    torch.testing.assert_close(other.p, got.p / 10)
    torch.testing.assert_close(compute_received_gain(link, other), compute_received_gain(link, got))


@pytest.mark.parametrize("name", ALL)
def test_nobody_sends(name: str) -> None:
    """A trial without senders stays finite."""
    link = make_link(4)
    sends = link.transmit_mask.clone()
    sends[0] = False
    got = solve(ALL[name], perturb(link, transmit_mask=sends))
    assert (got.p[0] == 0).all()
    assert not got.active_mask[0].any()
    assert (torch.isfinite(got.eta) & (got.eta > 0)).all()
    assert torch.isfinite(torch.view_as_real(got.p)).all()


@pytest.mark.parametrize("budget", [1.0, 1e12])
@pytest.mark.parametrize("name", ALL)
def test_zero_updates_and_dead_channels_do_not_make_nan(name: str, budget: float) -> None:
    """Single precision, budgets of a normalised and a physical link; all symbols zero in one
    segment, one device's in the other, and a channel that is zero."""
    link = make_link(10)
    power, h = link.symbol_power.clone(), link.h / math.sqrt(budget)
    power[:, 0] = 0.0
    power[:, 1, 3] = 0.0
    h[:, :, 1] = 0.0
    parts = {"budget": budget * link.budget, "gain": link.gain / budget}
    single = to_single_precision(perturb(link, symbol_power=power, h=h, **parts))
    got = solve(ALL[name], single)
    assert torch.isfinite(torch.view_as_real(got.p)).all()
    assert not got.eta.isnan().any()
    assert (got.eta > 0).all()
    assert torch.isfinite(compute_received_gain(single, got)).all()
    if ALL[name].power_constraint == "peak":
        used = got.p.abs().square() * single.symbol_power / single.budget[:, None]
        assert (used <= 1 + 1e-5).all()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "smcv" else ())
        for name in SCALE_POLICIES
    ],
)
def test_gradients_reach_channels_budgets_and_symbol_powers(name: str) -> None:
    """By finite differences, in a link where no tie, cap or threshold is near."""
    link = make_link(12)
    policy = make_policy(name, **({"variation": 0.7} if name == "smcv" else {}))

    def scalars(h: torch.Tensor, budget: torch.Tensor, power: torch.Tensor) -> tuple:  # type: ignore[type-arg]
        got = solve(policy, perturb(link, h=h, budget=budget, symbol_power=power))
        return torch.view_as_real(got.p), got.eta

    inputs = [one.clone().requires_grad_() for one in (link.h, link.budget, link.symbol_power)]
    assert torch.autograd.gradcheck(scalars, inputs, eps=1e-7, atol=1e-4, rtol=1e-4)
