"""What several policies share: inversion, common scales, thresholds and the receive scaling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import special
from support.power_links import HYPER, N, make_link, make_policy, perturb, solve
from support.sheet_twins import TWINS

from otafl.core.contracts import Coefficients
from otafl.power.base import apply_mmse_scaling

pytestmark = pytest.mark.exact

POLICY = {name: policy for name, (policy, _) in TWINS.items()}


def test_mean_reference_is_the_papers_oracle_scaling() -> None:
    """reference mean: gamma = P / mean m for gbma, P / (mean m E1(g_th)) for tci, over the devices
    that send. gbma is then an average policy."""
    link = make_link(7)
    link = perturb(link, budget=link.budget[:, :1].expand_as(link.budget))
    count = link.transmit_mask.sum(-1)[:, None]
    gamma = link.budget[:, :1] * count / (link.symbol_power * link.transmit_mask[:, None]).sum(-1)
    policy = make_policy("gbma", reference="mean")
    assert policy.power_constraint == "average"
    got = solve(policy, link)
    torch.testing.assert_close(got.p.abs().amax(-1).square(), gamma)
    ratio = (HYPER["threshold"] / link.gain).numpy()
    cost = torch.from_numpy(special.exp1(ratio))[:, :1] / link.gain[:, :1]
    policy = make_policy("tci", reference="mean", relative=False)
    torch.testing.assert_close(solve(policy, link).eta, gamma / cost)


@pytest.mark.parametrize(("name", "options"), [("tci", {"constraint": "peak"}), ("cotaf", {})])
def test_relative_thresholds_mean_the_same_with_a_path_loss(
    name: str, options: dict[str, Any]
) -> None:
    """A path loss of 120 dB that every device's power makes up for changes nothing that arrives; at
    a mean gain of 1, relative and absolute are the same."""
    link = make_link(11)
    one = perturb(link, h=link.h / link.gain.mean(1).sqrt()[:, None, None])
    one = perturb(one, gain=link.gain / link.gain.mean(1, keepdim=True))
    far = perturb(one, h=1e-6 * one.h, gain=1e-12 * one.gain, budget=1e12 * one.budget)
    near, absolute, distant = (
        solve(make_policy(name, relative=relative, **options), which)
        for relative, which in ((True, one), (False, one), (True, far))
    )
    assert 0 < near.active_mask.sum() < near.active_mask.numel()
    for got, h in ((absolute, one.h), (distant, far.h)):
        assert torch.equal(got.active_mask, near.active_mask)
        arrives = got.p * h / got.eta.sqrt()[..., None]
        torch.testing.assert_close(arrives, near.p * one.h / near.eta.sqrt()[..., None])
    torch.testing.assert_close(distant.p, 1e6 * near.p)
    torch.testing.assert_close(distant.eta, near.eta)


@pytest.mark.parametrize("name", ["ci", "blind"])
def test_mmse_scaling_is_the_best_for_what_arrives(name: str) -> None:
    """sum m (c - 1)^2 + N / eta at the policy's p, phases included: no neighbour of eta does
    better; and a trial that receives nothing useful keeps the policy's eta."""
    link = make_link(6)
    got = solve(POLICY[name], link)
    p = got.p.clone()
    p[0] = -torch.conj(link.h[0])  # all of it arrives with the wrong sign
    scaled = apply_mmse_scaling(Coefficients(p, got.eta, got.active_mask), link)
    assert torch.equal(scaled.p, p)
    assert torch.equal(scaled.eta[0], got.eta[0])
    a = (link.h * p).real

    def error(eta: torch.Tensor) -> torch.Tensor:
        c = a / eta.sqrt()[..., None]
        return (link.symbol_power * (c - 1).square() * got.active_mask).sum(-1) + N / eta

    useful = (link.symbol_power * a).sum(-1) > 0
    assert useful[1:].any()
    for factor in (0.5, 0.98, 1.02, 2.0):
        better = error(factor * scaled.eta) < error(scaled.eta)
        assert not (better & useful).any()
