"""Power policies against a plain looped twin, written from the literature's formulas, and the facts
that follow from each.

Mutations that make a test here fail: min and max swapped (ci's eta; the common scale of gbma and
tci), the root of eta for eta, sigma^2 for sigma^2 / 2, the conjugate of h missing, m left out of
the bound, of `full`'s numerator or of its denominator, the bound for its root, the threshold
compared with |h|, silent devices in ci's minimum or at full power, a mean over all for one over
the senders.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize, special

from otafl.contracts import Coefficients, Link, PowerPolicy, Statistics
from otafl.power.ci import ChannelInversion
from otafl.power.config import CiConfig, FullConfig, GbmaConfig, TciConfig
from otafl.power.full import Full
from otafl.power.gbma import Gbma
from otafl.power.tci import TruncatedChannelInversion

N = 0.5
THRESHOLD = 0.3
TRIALS, SEGMENTS, DEVICES = 3, 2, 6

Scalars = tuple[np.ndarray, float, np.ndarray]
"""p [K], eta, active [K] of one trial and segment."""


def make_link(seed: int = 0, linear: bool = True, spread: bool = True) -> Link:
    """Random channels of different large-scale gains, unequal m_k, unequal budgets over trials,
    some devices that do not send; float64."""
    rng = np.random.default_rng(seed)
    shape = (TRIALS, SEGMENTS, DEVICES)
    gain = rng.uniform(0.5, 2.0, (TRIALS, 1)).repeat(DEVICES, 1)
    z = rng.standard_normal((2, TRIALS, 1, DEVICES)) * math.sqrt(0.5)
    h = np.broadcast_to((z[0] + 1j * z[1]) * np.sqrt(gain)[:, None], shape)
    power = rng.uniform(0.2, 3.0, shape) if spread else np.ones(shape)
    sends = np.ones((TRIALS, DEVICES), dtype=bool)
    sends[1, 2] = sends[2, 0] = sends[2, 5] = False
    budget = np.array([[1.0], [10.0], [200.0]]).repeat(DEVICES, 1)
    return Link(
        h=torch.from_numpy(h.copy()),
        gain=torch.from_numpy(gain),
        budget=torch.from_numpy(budget),
        power=torch.from_numpy(power),
        noise=torch.full((TRIALS,), N, dtype=torch.float64),
        sends=torch.from_numpy(sends),
        linear=linear,
        hyper={"threshold": torch.full((TRIALS,), THRESHOLD, dtype=torch.float64)},
    )


def rayleigh_statistics(link: Link) -> Statistics:
    def mean_inverse(threshold: torch.Tensor) -> torch.Tensor:
        ratio = (threshold[:, None] / link.gain).numpy()
        return torch.from_numpy(special.exp1(ratio)) / link.gain

    amplitude = math.sqrt(math.pi) / 2 * link.gain.sqrt()
    return Statistics(link.gain, link.budget, amplitude, mean_inverse)


def solve(policy: PowerPolicy, link: Link) -> Coefficients:
    state = policy.prepare(rayleigh_statistics(link), link.hyper)
    _, coefficients = policy.coefficients(state, link)
    return coefficients


# The twins: one trial and one segment; h, gain, budget, m, sends are [K].


def full_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    p, top, bottom = np.zeros(len(h), complex), N, 0.0
    for k in np.flatnonzero(sends):
        p[k] = math.sqrt(budget[k] / m[k]) * np.exp(-1j * np.angle(h[k]))
        q = budget[k] * abs(h[k]) ** 2 / m[k]
        top += m[k] * q
        bottom += m[k] * math.sqrt(q)
    return p, (top / bottom) ** 2, sends


def ci_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    eta = min(budget[k] * abs(h[k]) ** 2 / m[k] for k in np.flatnonzero(sends))
    return np.where(sends, math.sqrt(eta) / h, 0.0), eta, sends


def tci_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    rho = min(
        budget[k] * gain[k] / special.exp1(THRESHOLD / gain[k]) / m[k]
        for k in np.flatnonzero(sends)
    )
    p, active = np.zeros(len(h), complex), np.zeros(len(h), bool)
    for k in np.flatnonzero(sends):
        if abs(h[k]) ** 2 >= THRESHOLD:
            p[k] = math.sqrt(rho) * h[k].conjugate() / abs(h[k]) ** 2
            active[k] = True
    return p, rho, active


def gbma_twin(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
    energy = min(budget[k] / m[k] for k in np.flatnonzero(sends))
    p = np.where(sends, math.sqrt(energy) * np.exp(-1j * np.angle(h)), 0.0)
    root = math.sqrt(gain[0]) * (math.sqrt(math.pi) / 2 if linear else 1.0)
    return p, energy * root**2, sends


POLICIES: list[tuple[PowerPolicy, Callable[..., Scalars]]] = [
    (Full(FullConfig()), full_twin),
    (ChannelInversion(CiConfig()), ci_twin),
    (TruncatedChannelInversion(TciConfig()), tci_twin),
    (Gbma(GbmaConfig()), gbma_twin),
]
IDS = ["full", "ci", "tci", "gbma"]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(("policy", "twin"), POLICIES, ids=IDS)
def test_equal_to_the_looped_twin(
    policy: PowerPolicy, twin: Callable[..., Scalars], linear: bool, seed: int
) -> None:
    link = make_link(seed, linear)
    got = solve(policy, link)
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            row = (link.h[s, q], link.gain[s], link.budget[s], link.power[s, q], link.sends[s])
            p, eta, active = twin(*(value.numpy() for value in row), linear)
            np.testing.assert_allclose(got.p[s, q].numpy(), p, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(got.eta[s, q].item(), eta, rtol=1e-9)
            np.testing.assert_array_equal(got.active[s, q].numpy(), active)


@pytest.mark.parametrize(("policy", "twin"), POLICIES, ids=IDS)
def test_single_precision_agrees(policy: PowerPolicy, twin: Callable[..., Scalars]) -> None:
    link = make_link(3)
    single = Link(
        h=link.h.to(torch.complex64),
        gain=link.gain.float(),
        budget=link.budget.float(),
        power=link.power.float(),
        noise=link.noise.float(),
        sends=link.sends,
        linear=True,
        hyper={"threshold": link.hyper["threshold"].float()},
    )
    got, expected = solve(policy, single), solve(policy, link)
    assert got.p.dtype == torch.complex64
    torch.testing.assert_close(got.p, expected.p.to(torch.complex64), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.eta, expected.eta.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("policy", [POLICIES[i][0] for i in (0, 1, 3)], ids=["full", "ci", "gbma"])
def test_peak_policies_are_within_every_budget(policy: PowerPolicy) -> None:
    """|p|^2 m <= P for every device and segment; `full` meets it with equality, `ci` and `gbma` for
    exactly one device of a segment."""
    assert policy.constraint == "peak"
    for seed in range(5):
        link = make_link(seed)
        used = solve(policy, link).p.abs().square() * link.power / link.budget[:, None]
        assert used.max() <= 1 + 1e-9
        tight = ((used - 1).abs() < 1e-9).sum(-1)
        expected = link.sends.sum(-1)[:, None] if isinstance(policy, Full) else torch.tensor(1)
        assert torch.equal(tight, expected.expand_as(tight))


@pytest.mark.parametrize(("policy", "twin"), POLICIES, ids=IDS)
def test_who_does_not_send_is_silent(policy: PowerPolicy, twin: Callable[..., Scalars]) -> None:
    """Neither on air nor in the way: the others' scalars do not depend on its channel."""
    link = make_link(2)
    got = solve(policy, link)
    off = ~link.sends[:, None].expand(-1, SEGMENTS, -1)
    assert (got.p[off] == 0).all()
    assert not got.active[off].any()
    faded = Link(**{**vars(link), "h": torch.where(off, 1e-6 * link.h, link.h)})
    other = solve(policy, faded)
    torch.testing.assert_close(other.p, got.p)
    torch.testing.assert_close(other.eta, got.eta)


def mse(root_eta: float, arrives: np.ndarray, m: np.ndarray) -> float:
    """sum m (c - 1)^2 + N / eta at the amplitudes |h p| that arrive."""
    return float((m * (arrives / root_eta - 1) ** 2).sum() + N / root_eta**2)


@pytest.mark.parametrize("seed", range(4))
def test_full_minimises_the_mean_squared_error(seed: int) -> None:
    link = make_link(seed)
    got = solve(Full(FullConfig()), link)
    arrives = (link.h * got.p).real.numpy()
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            args = (arrives[s, q], link.power[s, q].numpy())
            found = optimize.minimize_scalar(
                lambda log_root, args=args: mse(math.exp(log_root), *args),
                bounds=(-10, 10),
                method="bounded",
                options={"xatol": 1e-10},
            )
            root = got.eta[s, q].sqrt().item()
            assert root == pytest.approx(math.exp(found.x), rel=1e-6)
            assert mse(root, *args) <= found.fun * (1 + 1e-12)


def test_full_by_hand() -> None:
    """One device, unit power, h = 1, P = 2: sqrt(eta) = (1/2 + 2) / sqrt(2), c = 4/5, and the error
    (1/5)^2 + 1/2 / (25/8) = 1/5."""
    link = make_link(0)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    tiny = Link(
        h=one.to(torch.complex128),
        gain=one[0],
        budget=2 * one[0],
        power=one,
        noise=link.noise[:1],
        sends=one[0].bool(),
        linear=True,
        hyper={},
    )
    got = solve(Full(FullConfig()), tiny)
    assert got.eta.item() == pytest.approx(25 / 8)
    assert (got.p.real / got.eta.sqrt()).item() == pytest.approx(0.8)
    assert mse(got.eta.sqrt().item(), got.p.real.numpy(), np.ones(1)) == pytest.approx(0.2)


@pytest.mark.parametrize("policy", [POLICIES[1][0], POLICIES[2][0]], ids=["ci", "tci"])
def test_inversion_arrives_with_gain_one(policy: PowerPolicy) -> None:
    link = make_link(4)
    got = solve(policy, link)
    c = link.h * got.p / got.eta.sqrt()[..., None]
    torch.testing.assert_close(c, got.active.to(c.dtype), rtol=0, atol=1e-12)


def test_gbma_pre_compensates_the_phase_only() -> None:
    link = make_link(5)
    got = solve(Gbma(GbmaConfig()), link)
    arrives = link.h * got.p
    assert arrives.imag.abs().max() < 1e-12
    amplitude = got.p.abs().where(got.active, torch.nan)
    torch.testing.assert_close(
        amplitude.nanmean(-1, keepdim=True).expand_as(amplitude)[got.active], amplitude[got.active]
    )


@pytest.mark.parametrize("target", ["amplitude", "energy"])
@pytest.mark.parametrize("linear", [True, False])
def test_gbma_targets(target: str, linear: bool) -> None:
    """A target that is set overrules the payload's kind; amplitude and energy differ by pi / 4."""
    link = make_link(6, linear)
    got = solve(Gbma(GbmaConfig(gain_target=target)), link)
    bound = torch.where(link.sends[:, None], link.budget[:, None] / link.power, math.inf)
    energy = bound.amin(-1)
    factor = math.pi / 4 if target == "amplitude" else 1.0
    torch.testing.assert_close(got.eta, energy * link.gain[:, :1] * factor)


def test_mean_reference_is_the_papers_oracle_scaling() -> None:
    """reference mean: gamma = P / mean m for gbma, P / (mean m E1(g_th)) for tci, over the devices
    that send; without count_policy_power, E1 is left out. gbma is then an average policy."""
    link = make_link(7)
    count = link.sends.sum(-1)[:, None]
    gamma = link.budget[:, :1] * count / (link.power * link.sends[:, None]).sum(-1)
    policy = Gbma(GbmaConfig(reference="mean"))
    assert policy.constraint == "average"
    got = solve(policy, link)
    torch.testing.assert_close(got.p.abs().amax(-1).square(), gamma)
    cost = torch.from_numpy(special.exp1((THRESHOLD / link.gain).numpy()))[:, :1] / link.gain[:, :1]
    for counted, expected in ((True, gamma / cost), (False, gamma)):
        config = TciConfig(reference="mean", count_policy_power=counted)
        torch.testing.assert_close(solve(TruncatedChannelInversion(config), link).eta, expected)


def test_tci_silence_and_peak_power() -> None:
    """Devices below the threshold are silent, those just above it are above their budget."""
    link = make_link(8, spread=False)
    weak = torch.full_like(link.h, math.sqrt(THRESHOLD) * 1.0001j)
    weak[..., 0] *= 0.999
    got = solve(TruncatedChannelInversion(TciConfig()), Link(**{**vars(link), "h": weak}))
    assert not got.active[..., 0].any()
    used = got.p.abs().square() / link.budget[:, None]
    assert (used[got.active] > 1.5).all()


def test_tci_with_everybody_silent_stays_finite() -> None:
    link = make_link(9)
    policy = TruncatedChannelInversion(TciConfig())
    assert policy.may_be_silent
    got = solve(policy, Link(**{**vars(link), "h": 1e-3 * link.h}))
    assert not got.active.any()
    assert (got.p == 0).all()
    assert (torch.isfinite(got.eta) & (got.eta > 0)).all()


@pytest.mark.parametrize(("policy", "twin"), POLICIES, ids=IDS)
def test_zero_updates_do_not_make_nan(policy: PowerPolicy, twin: Callable[..., Scalars]) -> None:
    """Single precision, all symbols zero in one segment, one device's in the other."""
    link = make_link(10)
    power = link.power.clone()
    power[:, 0] = 0.0
    power[:, 1, 3] = 0.0
    parts = {name: vars(link)[name].float() for name in ("gain", "budget", "noise")}
    single = Link(
        **{**vars(link), **parts, "power": power.float(), "h": link.h.to(torch.complex64)}
    )
    got = solve(policy, single)
    assert torch.isfinite(torch.view_as_real(got.p)).all()
    assert not got.eta.isnan().any()
    c = (single.h * got.p).real / got.eta.sqrt()[..., None]
    assert torch.isfinite(c).all()
    assert (got.p.abs().square() * single.power <= single.budget[:, None] * 12).all()
