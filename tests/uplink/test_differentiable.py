"""Gradients through the uplink: the closed forms of `otafl.uplink.differentiable`, the real transport and
`otafl.over_the_air`, each against finite differences in double precision or a derivative worked
by hand.

Mutations that make a test here fail: the combiner not conjugated, p conjugated, sqrt(eta) for eta
in the gains or the noise, K for K^2, the common part's own squares not taken off, the budget
without its root; over_the_air under no_grad, its updates detached, its report attached; the
policy's p detached or its power unchecked; in the transport: m of detached signals, the transmit
scalar's modulus detached where clipping acts, a squared modulus whose gradient at zero is not a
number, an infinite clipping level in a quotient.
"""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.link_bench import MAKE, WEIGHTS, Bench, bench, cohort, given, updates, with_setup
from torch import Tensor, nn

import otafl
from otafl.core.contracts import Group, Link
from otafl.core.errors import UserError
from otafl.power.cao_static import CaoStatic
from otafl.power.custom import CustomPolicy
from otafl.power.scalars import cophase
from otafl.receivers.eigen import Eigen
from otafl.transport.impairments import Impairments
from otafl.uplink.differentiable import (
    aggregation_mse,
    combined,
    effective_gains,
    superpose,
    within_budget,
)

K = 6


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def complex_draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.complex(draw(*shape, seed=seed), draw(*shape, seed=seed + 100))


def gradcheck(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Against central differences: all inputs, all entries."""
    leaves = tuple(one.detach().clone().requires_grad_() for one in inputs)
    assert torch.autograd.gradcheck(function, leaves, eps=1e-6, atol=1e-6, rtol=1e-4)


def gradcheck_fast(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The same along one random direction of the inputs and outputs, which all entries are part
    of."""
    leaves = tuple(one.detach().clone().requires_grad_() for one in inputs)
    assert torch.autograd.gradcheck(
        function, leaves, eps=1e-6, atol=1e-6, rtol=1e-4, fast_mode=True
    )


# closed forms


def test_numbers_by_hand() -> None:
    """h p = (2j)(-1j) = 2 and (1+1j)(1) with real part 1; eta = 4: c = 1, 1/2. Symbols 3 and -1:
    (3 - 1/2 + z sqrt(1/8)) / 2. Error (1/4) [2 * 0 + 8 * 1/4 + 1/8]; a common part of 3 adds 3 (1/4
    - 1/4) = 0, and with c = 3/2, 1/2 it would be 3 (0 - 1/2)."""
    h, p = torch.tensor([2j, 1 + 1j]), torch.tensor([-1j, 1 + 0j])
    eta, m = torch.tensor(4.0), torch.tensor([2.0, 8.0])
    torch.testing.assert_close(effective_gains(h, p, eta), torch.tensor([1.0, 0.5]))
    x, z = torch.tensor([[3.0], [-1.0]]), torch.tensor([2.0])
    torch.testing.assert_close(superpose(x, h, p, eta), torch.tensor([1.25]))
    expected = torch.tensor([(2.5 + 2.0 * math.sqrt(0.125)) / 2.0])
    torch.testing.assert_close(superpose(x, h, p, eta, z), expected)
    expected = torch.tensor([(2.5 + 2.0 * math.sqrt(0.75)) / 2.0])
    torch.testing.assert_close(superpose(x, h, p, eta, z, variance=3.0), expected)
    assert aggregation_mse(h, p, eta, m).item() == pytest.approx((8 / 4 + 1 / 8) / 4)
    assert aggregation_mse(h, p, eta, m, variance=2.0).item() == pytest.approx((2 + 0.5) / 4)
    both = torch.tensor([-1.5j, 1 + 0j])
    common = aggregation_mse(h, both, eta, m, torch.tensor(3.0))
    assert common.item() == pytest.approx((2 / 4 + 8 / 4 - 3 / 2 + 1 / 8) / 4)
    f = torch.tensor([0.6, 0.8j])
    torch.testing.assert_close(combined(f, torch.tensor([[1.0, 1j]])), torch.tensor([1.4 + 0j]))
    held = within_budget(torch.tensor([0.0, 40.0]), torch.tensor([8.0, 9.0]), torch.tensor(2.0))
    torch.testing.assert_close(held, torch.tensor([1.0, math.sqrt(4.5)]))


def test_the_closed_form_is_the_mean_squared_error_of_what_superposes() -> None:
    """Exactly: symbols with the stated second moments E x_j x_k over equally likely columns, noise
    of variance one that is orthogonal to them."""
    d = 16
    basis = math.sqrt(d) * torch.linalg.qr(draw(d, K + 2))[0].T  # orthogonal rows of power one
    spread = torch.tensor([0.4, 1.0, 2.0, 0.1, 0.7, 3.0], dtype=torch.float64)
    x = spread[:, None].sqrt() * basis[:K] + math.sqrt(0.3) * basis[K]
    h, p = complex_draw(4, K), complex_draw(4, K, seed=1)
    eta = torch.tensor([0.5, 1.0, 2.0, 9.0], dtype=torch.float64)
    estimate = superpose(x, h, p, eta, basis[K + 1])
    got = (estimate - x.mean(0)).square().mean(-1)
    common = torch.tensor(0.3, dtype=torch.float64)
    expected = aggregation_mse(h, p, eta, spread + common, common)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_gradients_by_hand() -> None:
    """With p = a exp(-j angle h): dMSE/da_k = 2 m_k (c_k - 1) |h_k| / (sqrt(eta) K^2), and
    dMSE/deta = -[sum m (c - 1) c + N / eta] / (eta K^2)."""
    h, m = complex_draw(3, K), draw(3, K, seed=2).square()
    a = draw(3, K, seed=3).abs().requires_grad_()
    eta = draw(3, seed=4).square().requires_grad_()
    aggregation_mse(h, cophase(a, h), eta, m).sum().backward()
    with torch.no_grad():
        c = a * h.abs() / eta.sqrt()[:, None]
        by_a = 2 * m * (c - 1) * h.abs() / eta.sqrt()[:, None] / K**2
        by_eta = -((m * (c - 1) * c).sum(1) + 0.5 / eta) / eta / K**2
    torch.testing.assert_close(a.grad, by_a)
    torch.testing.assert_close(eta.grad, by_eta)


def test_the_optimum_is_stationary() -> None:
    """At the scalars of `cao_static` (Cao et al. 2020): no slope in eta nor in the amplitudes of
    devices that invert, and those at full power would want more."""
    trials = 50
    budget = 10.0 * torch.exp(draw(trials, K))
    link = Link(
        h=complex_draw(trials, 1, K),
        gain=torch.ones(trials, K),
        budget=budget,
        power=torch.exp(draw(trials, 1, K, seed=5)),
        noise=torch.full((trials,), 0.5, dtype=torch.float64),
        sends=torch.ones(trials, K, dtype=torch.bool),
        linear=True,
        hyper={},
    )
    _, best = CaoStatic().coefficients(None, link)
    amplitude = best.p.abs().requires_grad_()
    eta = best.eta.clone().requires_grad_()
    error = aggregation_mse(link.h, cophase(amplitude, link.h), eta, link.power)
    by_amplitude, by_eta = torch.autograd.grad(error.sum(), [amplitude, eta])
    scale = error.detach()
    assert (by_eta * best.eta / scale).abs().max() < 1e-10
    slope = by_amplitude * best.p.abs() / scale[..., None]
    full = best.p.abs() > (budget[:, None] / link.power).sqrt() * (1 - 1e-9)
    assert slope[~full].abs().max() < 1e-10
    assert (slope[full] < 1e-10).all()
    assert (slope[full] < -1e-3).sum() > 50 < (~full).sum()


def test_closed_forms_against_finite_differences() -> None:
    """By x, the phases that p did not undo, p, the receive scaling, a fixed f of three antennas."""
    h, p = complex_draw(2, K, 3), complex_draw(2, K, seed=1)
    f = nn.functional.normalize(complex_draw(2, 3, seed=2), dim=-1)
    phase, log_eta, x = draw(2, K, seed=3), draw(2, seed=4), draw(2, K, 5, seed=5)
    noise, common = draw(2, 5, seed=6), draw(2, seed=7).abs()

    def channel(phase: Tensor) -> Tensor:
        return combined(f, h) * torch.polar(torch.ones_like(phase), phase)

    gradcheck(lambda x, p, t, e: superpose(x, channel(t), p, e.exp(), noise), x, p, phase, log_eta)
    gradcheck(
        lambda p, t, e, s: aggregation_mse(
            channel(t), cophase(within_budget(s, p.abs(), p.abs() + 1), channel(t)), e.exp(), s**2
        ),
        p,
        phase,
        log_eta,
        draw(2, K, seed=8),
    )
    gradcheck(
        lambda p, e, m: aggregation_mse(channel(phase), p, e.exp(), m.exp(), common),
        p,
        log_eta,
        draw(2, K, seed=9),
    )


# the transport itself


def chosen(p: Tensor, eta: Tensor) -> CustomPolicy:
    """The policy that answers with p [S, K] and eta [S] in every segment, whatever their power."""

    def policy(link: Link) -> tuple[Tensor, Tensor]:
        return p[:, None].expand_as(link.h), eta[:, None].expand(link.h.shape[:2])

    policy.constraint = "none"  # type: ignore[attr-defined]
    return CustomPolicy(CustomPolicy.Settings.model_construct(name="chosen"), policy)


TRIALS = 2
REALS = 19

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # settings of the transport, the channel, and the impairments
    "plain": ({}, {}, {}),
    "centred": ({"centre": True}, {}, {}),
    "by_block": ({"normalise": "block"}, {}, {}),
    "quadrature": ({"quadrature": True, "centre": True}, {}, {"residual_phase_rad": 0.7}),
    "antennas": ({}, {"antennas": 3}, {}),
    "phases": ({}, {"antennas": 2}, {"residual_phase_rad": 1.0}),
    "coherence_blocks": ({}, {"blocks": 3, "groups": 2, "block_symbols": 8}, {}),
    "many_segments": ({"centre": True}, {"blocks": 24, "block_symbols": 1}, {}),
    "interference": ({}, {"antennas": 2}, {"interference_db": 3.0}),
    "carrier": ({}, {}, {"carrier_offset": 0.3}),
    "late": ({"quadrature": True}, {}, {"timing_offset": 0.8}),
    "aligned": ({}, {}, {"timing_offset": 0.8, "timing_receiver": "aligned_sample"}),
    "lmmse": ({}, {}, {"timing_offset": 0.8, "timing_receiver": "lmmse"}),
    "clipped": ({}, {}, {"clip_db": -2.0}),
    "everything": (
        {"quadrature": True},
        {"antennas": 2, "blocks": 2, "block_symbols": 8},
        {"clip_db": 0.0, "carrier_offset": 0.2, "residual_phase_rad": 0.5, "timing_offset": 0.5},
    ),
}


def uplink(case: str) -> Bench:
    transport, channel, settings = CASES[case]
    link = given(bench("full", range(TRIALS), K, **transport), **channel)
    made = Impairments.of([Impairments.Settings(**settings)] * TRIALS, None, link.streams)
    return with_setup(link, impairments=made, receiver=Eigen())


def estimate(link: Bench, x: Tensor, weighting: Any = "mean", mask: Tensor | None = None) -> Tensor:
    """[S, P] of rows x [S K, P] in two blocks, unequal weights."""
    masks = None if mask is None else {"a": mask[:, :4], "b": mask[:, 4:]}
    group = Group({"a": x[:, :4], "b": x[:, 4:]}, mask=masks, weighting=weighting)
    size = len(link.budget)
    received, _ = link.deliver((group,), cohort((K,) * size, K, weight=WEIGHTS * size), 3)
    return torch.cat(list(received.mean[0].values()), 1)


@pytest.mark.parametrize("case", CASES)
def test_transport_by_updates_powers_and_scaling(case: str) -> None:
    """With the same noise, channels and offsets at every evaluation."""
    link = uplink(case)
    p, log_eta = 2.0 * complex_draw(TRIALS, K, seed=3), draw(TRIALS, seed=4)

    def of(x: Tensor, p: Tensor, log_eta: Tensor) -> Tensor:
        return estimate(with_setup(link, policy=chosen(p, log_eta.exp())), x)

    gradcheck_fast(of, updates(TRIALS * K, REALS), p, log_eta)


@pytest.mark.parametrize("case", ["plain", "by_block", "antennas", "carrier", "everything"])
@pytest.mark.parametrize("weighting", ["mean", "none"])
def test_transport_by_updates_of_parts(case: str, weighting: str) -> None:
    """Devices know different parts of the payload, and the receive scaling follows the powers."""
    link = uplink(case)
    link = with_setup(link, receiver=Eigen(scale="mmse"))
    mask = (draw(TRIALS * K, REALS, seed=8) > -0.5).double()
    p = complex_draw(TRIALS, K, seed=3)

    def of(x: Tensor, p: Tensor) -> Tensor:
        eta = torch.ones(TRIALS, dtype=torch.float64)
        return estimate(with_setup(link, policy=chosen(p, eta)), x, weighting, mask)

    gradcheck_fast(of, updates(TRIALS * K, REALS), p)


@pytest.mark.parametrize("case", ["plain", "by_block", "quadrature", "many_segments"])
@pytest.mark.parametrize("policy", ["full", "ci", "gbma", "cao_static"])
def test_transport_by_updates_through_a_policy(policy: str, case: str) -> None:
    """Powers answer to the updates' mean powers, so the estimate depends on updates twice."""
    link = uplink(case)
    made = CaoStatic() if policy == "cao_static" else MAKE[policy]()
    known = link.transport.setup.statistics
    if policy == "gbma":
        known = bench("gbma", range(TRIALS), K).transport.setup.statistics
    link = with_setup(link, policy=made, statistics=known)
    gradcheck_fast(lambda x: estimate(link, x), updates(TRIALS * K, REALS))


@pytest.mark.parametrize("case", CASES)
def test_zeros_have_gradients_that_are_numbers(case: str) -> None:
    """Symbols that are zero, a device that sends nothing but zeros, and one that is silent."""
    link = uplink(case)
    x = updates(TRIALS * K, REALS)
    x[:, 2:5] = 0.0
    x[:, -1] = 0.0
    x[1] = 0.0
    p = complex_draw(TRIALS, K, seed=3)
    p[:, 2] = 0.0
    eta = torch.ones(TRIALS, dtype=torch.float64)
    leaves = [one.requires_grad_() for one in (x, p, eta)]
    estimate(with_setup(link, policy=chosen(p, eta)), x).square().sum().backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert torch.view_as_real(leaf.grad + 0j).isfinite().all()
        assert leaf.grad.abs().sum() > 0


# otafl.over_the_air


class Learned(nn.Module):
    """|p| and eta from two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))
        self.log_eta = nn.Parameter(torch.tensor(-0.3, dtype=torch.float64))

    def forward(self, link: Link) -> tuple[Tensor, Tensor]:
        share = self.share * link.h.abs().log1p()
        amplitude = within_budget(share, link.budget[:, None], link.power)
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

    gradcheck_fast(of, updates(K, REALS), policy.share, policy.log_eta)
    x = updates(K, REALS)
    got, _ = otafl.over_the_air(x, power=policy, snr_db=8.0, seed=2, round=5, **settings)
    torch.testing.assert_close(got, of(x, policy.share, policy.log_eta))
    (got - x.mean(0)).square().mean().backward()
    assert policy.share.grad is not None
    assert policy.log_eta.grad is not None
    assert policy.share.grad.abs() > 0
    assert policy.log_eta.grad.abs() > 0


def test_a_step_along_the_gradient_lowers_the_error() -> None:
    policy, x = Learned(), updates(K, 400)
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
    x = updates(K, REALS).requires_grad_()
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
    x = updates(K, REALS)
    assert not otafl.over_the_air(x, power="full")[0].requires_grad
    with torch.no_grad():
        got, _ = otafl.over_the_air(x, power=Learned())
    assert not got.requires_grad
    array, _ = otafl.over_the_air(x.numpy(), power=Learned())
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, got.numpy())


@pytest.mark.parametrize("transport", ["over_the_air", "digital", "ideal"])
def test_gradients_after_inference(transport: str) -> None:
    """What is kept from a call under inference mode does not spoil one with gradients."""
    x = updates(K, REALS)
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
        "    p = 0.5 * (link.budget[:, None] / link.power).sqrt() * link.h.conj() / link.h.abs()\n"
        "    return p, (p * link.h).real.square().mean(-1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("half_power").policy
    x = updates(K, REALS).requires_grad_()
    one, _ = otafl.over_the_air(x, power=policy)
    other, _ = otafl.over_the_air(x, power="half_power:policy")
    assert torch.equal(one, other)
    assert torch.equal(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (one, other)))


WRONG: list[tuple[Any, str]] = [
    (lambda link: link.h, "'<lambda>' returned a Tensor"),
    (lambda link: (link.h[0], link.gain), "returned tensors of shapes"),
    (lambda link: (2.0 * link.budget[:, None].sqrt() / link.power.sqrt(), 1 + link.noise[:, None]),
     "times the budget"),
    (lambda link: (0.0 * link.h, 0.0 * link.noise[:, None]), "not a positive number"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "says"), WRONG, ids=[says for _, says in WRONG])
def test_wrong_answers_are_refused(policy: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        otafl.over_the_air(updates(K, REALS), power=policy)
