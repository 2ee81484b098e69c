"""Laws of the power policies over fading. Seeds are fixed; every test's false-alarm level over all
that it compares is 1e-4.

Mutations that make a test here fail: the truncated inversion's budget on |p|^2 without E1(g_th),
the estimate's extra variance left out of it, m left out of it, the mean over devices for the max,
E|h| and sqrt(E|h|^2) swapped.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from otafl.channels.rayleigh import Rayleigh
from otafl.core.contracts import Coefficients, Link, PowerPolicy, Statistics
from otafl.power.cao_static import CaoStatic
from otafl.power.ci import ChannelInversion
from otafl.power.config import (
    CaoStaticConfig,
    CiConfig,
    CotafConfig,
    FullConfig,
    GbmaConfig,
    TciConfig,
)
from otafl.power.cotaf import Cotaf
from otafl.power.full import Full
from otafl.power.gbma import Gbma
from otafl.power.tci import TruncatedChannelInversion

LEVEL = 1e-4
BOUND = stats.norm.isf(LEVEL / 2)
STATES, DEVICES, BUDGET = 20_000, 8, 5.0
M = torch.tensor([1.0, 0.3, 2.0, 0.7, 1.5, 0.1, 1.2, 0.9], dtype=torch.float64)


def run(
    policy: PowerPolicy,
    gain: float = 1.0,
    variance: float = 0.0,
    threshold: float = 0.1,
    m: torch.Tensor = M,
    linear: bool = True,
) -> tuple[torch.Tensor, Link, Coefficients]:
    """h [S, 1, K], link and coefficients of 20,000 fading states of 8 Rayleigh devices; devices act
    on h + e."""
    z = np.random.default_rng(1).standard_normal((4, STATES, 1, DEVICES)) * math.sqrt(gain / 2)
    h = torch.from_numpy(z[0] + 1j * z[1])
    h_hat = h + math.sqrt(variance) * torch.from_numpy(z[2] + 1j * z[3])
    ones = torch.ones(STATES, DEVICES, dtype=torch.float64)
    hyper = {name: torch.full((STATES,), threshold).double() for name in ("threshold", "h_min")}
    link = Link(
        h=h_hat,
        gain=gain * ones,
        budget=BUDGET * ones,
        power=m.expand(STATES, 1, DEVICES),
        noise=torch.full((STATES,), 0.5, dtype=torch.float64),
        sends=ones.bool(),
        linear=linear,
        hyper=hyper,
    )
    inverse = Rayleigh.mean_inverse(None, threshold, gain, variance)  # type: ignore[arg-type]
    statistics = Statistics(
        gain=link.gain,
        budget=link.budget,
        noise=link.noise,
        mean_amplitude=lambda: Rayleigh.unit_mean_amplitude * link.gain.sqrt(),
        mean_power=lambda: link.gain,
        mean_inverse=lambda threshold: inverse * ones,
        draws=lambda count: h_hat[:1].expand(count, -1, -1),
    )
    return h, link, policy.coefficients(policy.prepare(statistics, hyper), link)[1]


def interval(sample: torch.Tensor, tests: int = 1) -> float:
    """Half-width about the mean at the level, shared by so many tests."""
    return stats.norm.isf(LEVEL / 2 / tests) * sample.std().item() / math.sqrt(sample.numel())


@pytest.mark.parametrize("variance", [0.0, 0.25])
@pytest.mark.parametrize(("gain", "threshold"), [(1.0, 0.1), (0.2, 0.1), (3.0, 1.0)])
def test_tci_meets_the_long_term_budget(gain: float, threshold: float, variance: float) -> None:
    """E|p|^2 m = P for the device of the largest m, m / max m of it for the others."""
    policy = TruncatedChannelInversion(TciConfig(relative=False))
    _, link, got = run(policy, gain, variance, threshold)
    assert policy.constraint == "average"
    used = (got.p.abs().square() * link.power)[:, 0] / BUDGET
    for k, share in enumerate((M / M.max()).tolist()):
        assert abs(used[:, k].mean() - share) < interval(used[:, k], DEVICES)
    assert used.max() > 1.5


@pytest.mark.parametrize("counted", [True, False])
def test_tci_mean_reference_meets_it_on_average_over_devices(counted: bool) -> None:
    """Without the policy's own power counted, the mean is E1(g_th) times the budget."""
    config = TciConfig(reference="mean", count_policy_power=counted, relative=False)
    _, link, got = run(TruncatedChannelInversion(config))
    used = (got.p.abs().square() * link.power)[:, 0].mean(1) / BUDGET
    expected = 1.0 if counted else special.exp1(0.1)
    assert abs(used.mean() - expected) < interval(used)


@pytest.mark.parametrize("variance", [0.0, 0.25])
@pytest.mark.parametrize(("gain", "threshold"), [(1.0, 0.1), (0.2, 0.3)])
def test_tci_silent_fraction(gain: float, threshold: float, variance: float) -> None:
    """1 - exp(-g_th / beta), binomial; beta is the estimate's mean gain."""
    _, _, got = run(TruncatedChannelInversion(TciConfig(relative=False)), gain, variance, threshold)
    silent = int((~got.active).sum())
    share = 1 - math.exp(-threshold / (gain * (1 + variance)))
    assert stats.binomtest(silent, STATES * DEVICES, share).pvalue > LEVEL


@pytest.mark.parametrize("gain", [1.0, 0.04])
def test_gbma_gains(gain: float) -> None:
    """Amplitude target: E c = 1, Var c = (1 - pi/4) / (pi/4). Energy target: E c = sqrt(pi)/2 and
    E c^2 = 1. Errors of 160,000 draws from the moments of |h|."""
    n = STATES * DEVICES
    for linear in (True, False):
        h, _, got = run(Gbma(GbmaConfig()), gain, linear=linear)
        c = (h * got.p).real / got.eta.sqrt()[..., None]
        mean, square = (1.0, 4 / math.pi) if linear else (math.sqrt(math.pi) / 2, 1.0)
        assert abs(c.mean() - mean) < stats.norm.isf(LEVEL / 8) * c.std() / math.sqrt(n)
        assert abs(c.square().mean() - square) < stats.norm.isf(LEVEL / 8) * square / math.sqrt(n)


def test_gbma_error_about_the_mean() -> None:
    """With v = Re(y) / (K sqrt(E)): E v = mu_h mean x, and E|v - E v|^2 = (1 - pi/4)/K^2 sum |x|^2
    + d N / (K^2 E), for 30 fixed symbols of unequal devices; divided here by mu_h^2, the amplitude
    target."""
    rng = np.random.default_rng(3)
    d = 30
    x = torch.from_numpy(rng.standard_normal((DEVICES, d)) + 0.5)
    m = x.square().mean(1)
    h, _, got = run(Gbma(GbmaConfig()), m=m)
    noise = torch.from_numpy(rng.standard_normal((STATES, d)) * math.sqrt(0.5))
    root = got.eta.sqrt()
    received = (h * got.p).real[:, 0] @ x + noise
    v = received / (DEVICES * root)
    error = v - x.mean(0)
    for j in range(d):
        assert abs(error[:, j].mean()) < interval(error[:, j], d + 1)
    mu, energy = math.pi / 4, BUDGET / m.max().item()
    law = ((1 - mu) * x.square().sum() + d * 0.5 / energy) / DEVICES**2 / mu
    squared = error.square().sum(1)
    assert abs(squared.mean() - law.item()) < interval(squared, d + 1)


def test_gbma_energy_target_makes_a_product_of_two_sums_unbiased() -> None:
    """E[c_k c_k] = 1 with a common fade: the mean of sum c_k u_k sum c_j v_j, over signs that
    leave the diagonal, is sum u_k v_k."""
    h, _, got = run(Gbma(GbmaConfig()), linear=False)
    c = ((h * got.p).real / got.eta.sqrt()[..., None])[:, 0]
    sign = torch.from_numpy(np.random.default_rng(4).choice([-1.0, 1.0], (STATES, DEVICES)))
    u, v = torch.linspace(0.5, 2, DEVICES).double(), torch.linspace(3, 1, DEVICES).double()
    product = (c * sign * u).sum(1) * (c * sign * v).sum(1)
    assert abs(product.mean() - (u * v).sum()) < interval(product)


@pytest.mark.parametrize("variance", [0.0, 0.25])
def test_cotaf_silent_fraction(variance: float) -> None:
    """1 - exp(-h_min^2), the threshold being on the amplitude."""
    _, _, got = run(Cotaf(CotafConfig()), variance=variance, threshold=0.5)
    silent = int((~got.active).sum())
    share = 1 - math.exp(-0.25 / (1 + variance))
    assert stats.binomtest(silent, STATES * DEVICES, share).pvalue > LEVEL


def test_ci_reaches_as_far_as_the_weakest() -> None:
    """At equal budgets and symbol powers eta / P = min_k g_k is exponential with mean 1 / K."""
    _, _, got = run(ChannelInversion(CiConfig()), m=torch.ones(DEVICES).double())
    law = stats.expon(scale=1 / DEVICES)
    assert stats.kstest((got.eta / BUDGET).ravel().numpy(), law.cdf).pvalue > LEVEL


PEAK = {
    "full": Full(FullConfig()),
    "ci": ChannelInversion(CiConfig()),
    "gbma": Gbma(GbmaConfig()),
    "tci": TruncatedChannelInversion(TciConfig(constraint="peak")),
    "cotaf": Cotaf(CotafConfig()),
    "cao_static": CaoStatic(CaoStaticConfig()),
}


@pytest.mark.parametrize("policy", PEAK.values(), ids=PEAK)
@pytest.mark.parametrize("variance", [0.0, 0.25])
def test_peak_policies_never_exceed_the_budget(policy: PowerPolicy, variance: float) -> None:
    """Whatever the estimate, in each of 160,000 states; nothing random in the bound."""
    _, link, got = run(policy, variance=variance)
    used = got.p.abs().square() * link.power / BUDGET
    assert used.max() <= 1 + 1e-12


def test_ci_error_with_an_imperfect_estimate_is_the_gain_error() -> None:
    """c = Re(h / h_hat): given h_hat, h is normal about h_hat / (1 + v), so E c = 1 / (1 + v)."""
    h, _, got = run(ChannelInversion(CiConfig()), variance=0.25)
    c = (h * got.p).real / got.eta.sqrt()[..., None]
    strong = run(ChannelInversion(CiConfig()), variance=0.25)[1].h.abs() > 0.5
    sample = c[strong]  # E[c; h_hat] is the same for every h_hat, and its spread is then bounded
    assert abs(sample.mean() - 0.8) < interval(sample)
