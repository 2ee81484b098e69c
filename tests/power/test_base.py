"""Facts that all power policies share."""

from __future__ import annotations

import pytest
import torch
from support.power_links import (
    SEGMENTS,
    compute_received_gain,
    make_link,
    make_policy,
    perturb,
    solve,
)
from support.sheet_twins import TWINS

from otafl.core import registry
from otafl.core.contracts import Link

pytestmark = pytest.mark.exact

ALL = (
    {name: make_policy(name) for name in registry.list_names("power")}
    | {name: policy for name, (policy, _) in TWINS.items()}
    | {"cao_average": make_policy("cao_average", draws=64)}
)
PEAK = [name for name, policy in ALL.items() if policy.power_constraint == "peak"]


def test_every_policy_is_here() -> None:
    assert set(registry.list_names("power")) <= set(ALL)


def used_power(link: Link, p: torch.Tensor) -> torch.Tensor:
    """|p|^2 m over the budget, [S, Q, K]."""
    return p.abs().square() * link.symbol_power / link.budget[:, None]


@pytest.mark.parametrize("name", PEAK)
def test_peak_policies_are_within_every_budget(name: str) -> None:
    """|p|^2 m <= P for every device and segment. `full` meets it with equality, `ci`, `gbma` and
    `blind` for exactly one device of a segment, and the optimal policies for at least one."""
    link = make_link(1)
    used = used_power(link, solve(ALL[name], link).p)
    assert used.max() <= 1 + 1e-9
    tight = ((used - 1).abs() < 1e-9).sum(-1)
    if name == "full":
        assert torch.equal(tight, link.transmit_mask.sum(-1)[:, None].expand_as(tight))
    elif name in ("ci", "multi_antenna_ci", "gbma", "blind"):
        assert (tight == 1).all()
    elif name in ("cao_static", "smcv"):
        assert (tight >= 1).all()


@pytest.mark.parametrize("name", ALL)
def test_silence_and_the_scale_of_symbols(name: str) -> None:
    """Who does not send is neither on air nor in the way: the others' scalars depend neither on its
    channel nor on its symbols. Ten times the amplitude of all symbols is a tenth of p, and what
    arrives is as before, unless the policy has a scale of its own. A trial without senders stays
    finite."""
    link = make_link(2)
    got = solve(ALL[name], link)
    off = ~link.transmit_mask[:, None].expand(-1, SEGMENTS, -1)
    assert (got.p[off] == 0).all()
    assert not got.active_mask[off].any()
    faded = perturb(
        link,
        h=torch.where(off, 1e3 * link.h, link.h),
        symbol_power=torch.where(off, 1e3 * link.symbol_power, link.symbol_power),
    )
    other = solve(ALL[name], faded)
    torch.testing.assert_close(other.p, got.p)
    torch.testing.assert_close(other.eta, got.eta)
    loud = solve(ALL[name], perturb(link, symbol_power=100.0 * link.symbol_power))
    arrives, louder = compute_received_gain(link, got), compute_received_gain(link, loud)
    if ALL[name].scale_invariant:
        torch.testing.assert_close(loud.p, got.p / 10)
        torch.testing.assert_close(louder, arrives)
    else:
        assert not torch.allclose(louder, arrives)
    sends = link.transmit_mask.clone()
    sends[0] = False
    nobody = solve(ALL[name], perturb(link, transmit_mask=sends))
    assert (nobody.p[0] == 0).all()
    assert (torch.isfinite(nobody.eta) & (nobody.eta > 0)).all()


@pytest.mark.parametrize("name", ["full", "cao_static", "gbma", "tci"])
def test_gradients_reach_channels_budgets_and_symbol_powers(name: str) -> None:
    """By finite differences, in a link where no tie, cap or threshold is near."""
    link = make_link(12)
    policy = make_policy(name)

    def scalars(h: torch.Tensor, budget: torch.Tensor, power: torch.Tensor) -> tuple:  # type: ignore[type-arg]
        got = solve(policy, perturb(link, h=h, budget=budget, symbol_power=power))
        return torch.view_as_real(got.p), got.eta

    inputs = [one.clone().requires_grad_() for one in (link.h, link.budget, link.symbol_power)]
    assert torch.autograd.gradcheck(scalars, inputs, eps=1e-7, atol=1e-4, rtol=1e-4)
