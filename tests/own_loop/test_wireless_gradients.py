"""Gradients through `otafl.over_the_air`, by updates and by policies that learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.gradients import K, check_gradients
from support.link_bench import draw_updates
from torch import Tensor, nn

import otafl
from otafl.core.contracts import Link
from otafl.core.errors import UserError
from otafl.own_loop.differentiable import (
    scale_to_budget,
)
from otafl.power.base import cophase

pytestmark = pytest.mark.exact

REALS = 19


class Learned(nn.Module):
    """|p| and eta from two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))
        self.log_eta = nn.Parameter(torch.tensor(-0.3, dtype=torch.float64))

    def forward(self, link: Link) -> tuple[Tensor, Tensor]:
        share = self.share * link.h.abs().log1p()
        amplitude = scale_to_budget(share, link.budget[:, None], link.symbol_power)
        return cophase(amplitude, link.h), self.log_eta.exp().expand(link.h.shape[:2])


SETTINGS: dict[str, dict[str, Any]] = {
    "flat": {},
    "antennas": {"channel": {"name": "rayleigh", "antennas": 4}},
    "centred": {"transport": {"name": "over_the_air", "centre": True, "quadrature": True}},
    "blocks": {"channel": {"name": "rayleigh", "block_symbols": 4, "speed_kmh": 30.0}},
    "impaired": {"impairments": {"clip_db": 0.0, "carrier_offset": 0.2, "timing_offset": 0.5}},
    "interfered": {"impairments": {"interference": "alpha_stable", "interference_db": 3.0}},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_over_the_air_by_updates_and_a_module(settings: dict[str, Any]) -> None:
    policy = Learned()

    def of(x: Tensor, share: Tensor, log_eta: Tensor) -> Tensor:
        def called(link: Link) -> tuple[Tensor, Tensor]:
            parameters = {"share": share, "log_eta": log_eta}
            returned: tuple[Tensor, Tensor] = torch.func.functional_call(policy, parameters, link)
            return returned

        return otafl.over_the_air(x, power=called, snr_db=8.0, seed=2, round=5, **settings)[0]

    check_gradients(of, draw_updates(K, REALS), policy.share, policy.log_eta)
    x = draw_updates(K, REALS)
    got, _ = otafl.over_the_air(x, power=policy, snr_db=8.0, seed=2, round=5, **settings)
    torch.testing.assert_close(got, of(x, policy.share, policy.log_eta))
    (got - x.mean(0)).square().mean().backward()
    assert policy.share.grad is not None
    assert policy.log_eta.grad is not None
    assert policy.share.grad.abs() > 0
    assert policy.log_eta.grad.abs() > 0


WRONG: list[tuple[Any, str]] = [
    (lambda link: link.h, "'<lambda>' returned a Tensor"),
    (lambda link: (link.h[0], link.gain), "returned tensors of shapes"),
    (lambda link: (2.0 * link.budget[:, None].sqrt() / link.symbol_power.sqrt(),
                   1 + link.noise_variance[:, None]),
     "times the budget"),
    (lambda link: (0.0 * link.h, 0.0 * link.noise_variance[:, None]), "not a positive number"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "says"), WRONG, ids=[says for _, says in WRONG])
def test_wrong_answers_are_refused(policy: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        otafl.over_the_air(draw_updates(K, REALS), power=policy)
