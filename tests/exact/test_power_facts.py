"""Facts of single policies, and gradients through them.

Mutations that make a test here fail: cotaf with sum or mean for the largest norm, or alpha left
constant; silent by |h|^2; blind's receiver without conjugation, A or K; a noise of A antennas for
that of one; fractional compensation of |h| for that of the large-scale gain, alpha / 2 for alpha;
`none` scaled by the weakest; any detached tensor on the way from budgets or channels to p and eta.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from twins.power import N, arrived, changed, make_link, mse, policy_of, solve

from otafl.core import registry
from otafl.core.contracts import Link

SCALE_POLICIES = ["none", "full", "ci", "cao_static", "smcv", "blind", "open_loop", "gbma", "tci"]


def plain_link(h: torch.Tensor, budget: float, **fields: object) -> Link:
    """h [S, K] complex, unit symbol powers and gains, everybody sends."""
    trials, devices = h.shape
    ones = torch.ones(trials, devices, dtype=torch.float64)
    link = Link(
        h=h[:, None],
        gain=ones,
        budget=budget * ones,
        power=ones[:, None],
        noise=torch.full((trials,), N, dtype=torch.float64),
        sends=ones.bool(),
        linear=True,
        hyper={},
    )
    return changed(link, **fields)


def fading(*shape: int, seed: int = 0) -> torch.Tensor:
    z = np.random.default_rng(seed).standard_normal((2, *shape)) * math.sqrt(0.5)
    return torch.from_numpy(z[0] + 1j * z[1])


def test_none_arrives_without_distortion_at_the_mean_noise() -> None:
    link = make_link(1)
    got = solve(policy_of("none"), link)
    assert policy_of("none").constraint == "none"
    there = link.sends[:, None]
    torch.testing.assert_close(arrived(link, got), there.double().expand(-1, 2, -1))
    received = (link.budget[:, None] * link.h.abs().square() * there).sum(-1)
    torch.testing.assert_close(got.eta, received / (link.power * there).sum(-1))


def test_cotaf_noise_falls_as_updates_shrink() -> None:
    """Noise of the mean of K_a devices, N / (K_a^2 alpha h_min^2) with alpha = P / max m: over
    rounds of a tenth of the amplitude it falls by a hundred."""
    h, h_min, budget = fading(4, 10), 0.5, 8.0
    for m in (1.0, 0.01, 1e-4):
        power = m * torch.linspace(0.3, 1.0, 10).double().expand(4, 1, 10)
        hyper = {"h_min": torch.full((4,), h_min).double()}
        link = plain_link(h, budget, power=power, hyper=hyper)
        got = solve(policy_of("cotaf"), link)
        on_air = (h.abs() >= h_min).sum(1)
        assert torch.equal(got.active.sum(-1)[:, 0], on_air)
        noise = N / got.eta[:, 0] / on_air**2
        torch.testing.assert_close(noise, N * m / (on_air.double() ** 2 * budget * h_min**2))
        used = got.p.abs().square() * power / budget
        assert used.max() <= 1 + 1e-12


def blind_link(
    antennas: int, trials: int, devices: int, budget: float
) -> tuple[Link, torch.Tensor]:
    """The link behind maximum-ratio combining, and h [S, K, A]."""
    h = fading(trials, devices, antennas, seed=antennas)
    total = h.sum(1)
    f = total / torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    scalar = torch.einsum("sa,ska->sk", f.conj(), h)
    return plain_link(scalar, budget, antennas=antennas), h


@pytest.mark.parametrize("antennas", [1, 4, 16])
def test_blind_is_the_papers_estimate(antennas: int) -> None:
    """Re(sum_a conj(sum_k h_ka) y_a) / (K A sqrt(P)), antenna by antenna, of one symbol."""
    budget, devices = 3.0, 5
    link, h = blind_link(antennas, 20, devices, budget)
    got = solve(policy_of("blind"), link)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((20, devices)))
    z = fading(20, antennas, seed=9)
    p = got.p[:, 0]
    torch.testing.assert_close(p, torch.full_like(p, math.sqrt(budget)))  # real, the same for all
    y = (h * (p * x)[..., None]).sum(1) + z
    total = h.sum(1)
    paper = (total.conj() * y).sum(-1).real / (devices * antennas * math.sqrt(budget))
    f = total / torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    ours = (f.conj() * y).sum(-1).real / (devices * got.eta[:, 0].sqrt())
    torch.testing.assert_close(ours, paper)
    assert registry.settings("power", "blind").receiver == "mrc"


def test_blind_divides_by_the_large_scale_gain() -> None:
    """Everything a hundred times weaker: the same gains arrive."""
    link, _ = blind_link(4, 20, 5, 3.0)
    weak = changed(link, h=0.1 * link.h, gain=0.01 * link.gain)
    one, other = solve(policy_of("blind"), link), solve(policy_of("blind"), weak)
    torch.testing.assert_close(arrived(weak, other), arrived(link, one))


def test_open_loop_is_the_3gpp_formula_of_sionna() -> None:
    """One resource block, path losses of 70 to 130 dB, noise of -120 dBm: watts as Sionna's."""
    from otafl.channels.sionna_rng import keep_global_state

    with keep_global_state():
        from sionna.sys import open_loop_uplink_power_control

    noise_dbm, p0_dbm, max_dbm = -120.0, -80.0, 23.0
    loss_db = torch.linspace(70, 130, 13).double()[None]
    gain = 10 ** (-loss_db / 10)
    for alpha in (0.0, 0.5, 0.8, 1.0):
        hyper = {"alpha": torch.tensor([alpha]), "p0_db": torch.tensor([p0_dbm - noise_dbm])}
        link = plain_link(
            fading(1, 13) * gain.sqrt(),
            10 ** ((max_dbm - noise_dbm) / 10),
            gain=gain,
            hyper={name: value.double() for name, value in hyper.items()},
            power=torch.full((1, 1, 13), 0.3).double(),
        )
        got = solve(policy_of("open_loop"), link)
        watts = (got.p.abs().square() * link.power)[0, 0] * 10 ** ((noise_dbm - 30) / 10)
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
        h = fading(1, 4, seed=seed) * gain.sqrt()
        got = solve(policy_of("open_loop"), plain_link(h, 1e6, gain=gain, hyper=hyper))
        powers.append(got.p.abs().square()[:, 0])
        torch.testing.assert_close(powers[-1] * gain, torch.full((1, 4), 10.0).double())
    torch.testing.assert_close(powers[0], powers[1])


@pytest.mark.parametrize("name", SCALE_POLICIES)
def test_gradients_reach_channels_budgets_and_symbol_powers(name: str) -> None:
    """By finite differences, in a link where no tie, cap or threshold is near."""
    link = make_link(12)
    policy = policy_of(name, **({"variation": 0.7} if name == "smcv" else {}))

    def scalars(h: torch.Tensor, budget: torch.Tensor, power: torch.Tensor) -> tuple:  # type: ignore[type-arg]
        got = solve(policy, changed(link, h=h, budget=budget, power=power))
        return torch.view_as_real(got.p), got.eta

    inputs = [one.clone().requires_grad_() for one in (link.h, link.budget, link.power)]
    assert torch.autograd.gradcheck(scalars, inputs, eps=1e-7, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["full", "cao_static"])
def test_a_learner_can_descend_on_the_error(name: str) -> None:
    """At the optimum of eta, the error's derivative by a factor on sqrt(eta) is zero; from a wrong
    factor, gradient descent on it comes back to one."""
    link = make_link(13, spread=False)
    got = solve(policy_of(name), link)
    arrives = (link.h * got.p).real[0, 0]
    log_factor = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        root = got.eta[0, 0].sqrt() * log_factor.exp()
        error = ((arrives / root - 1) ** 2).sum() + N / root.square()
        (slope,) = torch.autograd.grad(error, log_factor)
        log_factor = (log_factor - 0.1 * slope).detach().requires_grad_()
    assert log_factor.item() == pytest.approx(0.0, abs=1e-6)
    root = got.eta[0, 0].sqrt().item()
    assert mse(root, arrives.numpy(), np.ones(6)) <= error.item() * (1 + 1e-12)
