"""The first antenna, the sum of channels, the first eigenvector, and the choice among them."""

from __future__ import annotations

import pytest
import torch
from support.combiners import draw_channels

from otafl import receivers
from otafl.core import registry
from otafl.core.contracts import apply_combiner
from otafl.receivers.base import Auto, Eigen, Mrc, Scalar

pytestmark = pytest.mark.exact


def test_it_hears_the_first_antenna_alone() -> None:
    h = draw_channels()
    f = Scalar().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    assert torch.equal(apply_combiner(f, h), h[..., 0])


def test_mrc_sums_the_channels() -> None:
    h = draw_channels()
    f = Mrc().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    total = h.sum(2)
    torch.testing.assert_close(f, total / total.norm(dim=-1, keepdim=True))


def test_eigen_receives_the_most_power() -> None:
    h = draw_channels(antennas=12)
    budget = torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    f = Eigen().combine(h, torch.ones(40, 8).bool(), budget)
    best = ((f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget).sum(1)
    a = h[:, 0] * budget.sqrt()[..., None]
    law = torch.linalg.matrix_norm(a, ord=2).square()
    torch.testing.assert_close(best, law)
    first = f[..., 0]
    assert (first.real >= 0.0).all()
    torch.testing.assert_close(first.imag, torch.zeros_like(first.imag), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("power", "scale"), [("blind", "policy"), ("multi_antenna_ci", "mmse"), ("tci", "mmse")]
)
def test_it_is_the_receiver_that_the_policy_is_made_for(power: str, scale: str) -> None:
    policy = registry.make_component("power", registry.load_settings_class("power", power)())
    many, one = (receivers.build(Auto(scale=scale), policy, count) for count in (2, 1))
    assert many.name == policy.receiver
    assert one.name == ("mrc" if power == "blind" else "scalar")
    assert many.scale == one.scale == scale


def test_a_receiver_that_is_named_is_taken() -> None:
    section = registry.load_settings_class("receiver", "eigen")(scale="mmse")
    policy = registry.load_settings_class("power", "ci")()
    for count in (1, 4):
        assert receivers.build(section, policy, count) is section
