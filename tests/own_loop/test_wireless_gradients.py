"""Gradients through `otafl.over_the_air`, by updates and by policies that learn."""

from __future__ import annotations

import importlib
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.gradients import K, check_gradients_fast
from support.link_bench import draw_updates
from support.rounding import assert_agree
from torch import Tensor, nn

import otafl
from otafl.core.contracts import Link
from otafl.core.errors import UserError
from otafl.own_loop.differentiable import (
    scale_to_budget,
)
from otafl.power.scalars import cophase

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
    "coherence": {"channel": {"name": "rayleigh", "block_symbols": 5}},
    "csi": {"csi": {"name": "error", "variance": 0.2}},
    "centred": {"transport": {"name": "over_the_air", "centre": True, "quadrature": True}},
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

    check_gradients_fast(of, draw_updates(K, REALS), policy.share, policy.log_eta)
    x = draw_updates(K, REALS)
    got, _ = otafl.over_the_air(x, power=policy, snr_db=8.0, seed=2, round=5, **settings)
    torch.testing.assert_close(got, of(x, policy.share, policy.log_eta))
    (got - x.mean(0)).square().mean().backward()
    assert policy.share.grad is not None
    assert policy.log_eta.grad is not None
    assert policy.share.grad.abs() > 0
    assert policy.log_eta.grad.abs() > 0


def test_a_step_along_the_gradient_lowers_the_error() -> None:
    policy, x = Learned(), draw_updates(K, 400)
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.02)
    errors = []
    for _ in range(20):
        got, report = otafl.over_the_air(x, power=policy, snr_db=20.0, seed=1)
        loss = (got - x.mean(0)).square().sum() / x.mean(0).square().sum()
        assert report.nmse == pytest.approx(loss.item())
        errors.append(report.nmse)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert all(b < a for a, b in itertools.pairwise(errors))


def test_the_report_is_plain_and_nothing_warns() -> None:
    x = draw_updates(K, REALS).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, report = otafl.over_the_air({"a": x, "b": x.float() ** 2}, power=Learned())
    assert got["a"].requires_grad
    assert got["b"].requires_grad
    assert got["b"].dtype == torch.float32
    for name in ("nmse", "symbols", "bits", "side_symbols", "airtime_s", "eta"):
        assert type(getattr(report, name)) is float
    for name in ("energy_j", "tx_power_w", "active", "h", "p", "c"):
        assert type(getattr(report, name)) is np.ndarray


def test_without_anything_to_learn_there_is_no_graph() -> None:
    x = draw_updates(K, REALS)
    assert not otafl.over_the_air(x, power="full")[0].requires_grad
    with torch.no_grad():
        got, _ = otafl.over_the_air(x, power=Learned())
    assert not got.requires_grad
    array, _ = otafl.over_the_air(x.numpy(), power=Learned())
    assert type(array) is np.ndarray
    assert_agree(array, got.numpy())


@pytest.mark.parametrize("transport", ["over_the_air", "digital", "ideal"])
def test_gradients_after_inference(transport: str) -> None:
    """What is kept from a call under inference mode does not spoil one with gradients."""
    x = draw_updates(K, REALS)
    with torch.inference_mode():
        plain, _ = otafl.over_the_air(x, power="full", transport=transport)
    got, _ = otafl.over_the_air(x.requires_grad_(), power="full", transport=transport)
    torch.testing.assert_close(got, plain.clone(), rtol=1e-12, atol=0)
    got.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    if transport != "over_the_air":
        torch.testing.assert_close(x.grad, torch.full_like(x, 1.0 / K))


def test_a_policy_by_name_is_the_function_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_power.py").write_text(
        "def policy(link):\n"
        "    p = 0.5 * (link.budget[:, None] / link.symbol_power).sqrt() * link.h.conj() / "
        "link.h.abs()\n    return p, (p * link.h).real.square().mean(-1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("half_power").policy
    x = draw_updates(K, REALS).requires_grad_()
    one, _ = otafl.over_the_air(x, power=policy)
    other, _ = otafl.over_the_air(x, power="half_power:policy")
    assert torch.equal(one, other)
    assert torch.equal(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (one, other)))


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
