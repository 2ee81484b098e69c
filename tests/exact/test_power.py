"""Every power policy against a plain looped twin, written from the literature's formulas, and the
facts that all share or that follow from a few lines.

Mutations that make a test here fail: min and max swapped (ci's eta; the common scale of gbma, tci
and cotaf), the root of eta for eta, sigma^2 for sigma^2 / 2, the conjugate of h missing, m left
out of the bound, of `full`'s numerator or of its denominator, the bound for its root, the
thresholds of tci and cotaf with |h| and |h|^2 swapped, silent devices in ci's minimum or at full
power, a mean over all for one over the senders, tci's peak without the threshold, cao's index off
by one, smcv's free devices not answering the capped ones, blind without A, without beta or with the
sum over all, alpha's sign, no clamp at the budget, `none`'s symbol power missing.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import optimize, special
from twins.power import (
    HYPER,
    SEGMENTS,
    TRIALS,
    TWINS,
    N,
    arrived,
    changed,
    make_link,
    mse,
    policy_of,
    single_precision,
    solve,
)

from otafl.core import registry
from otafl.core.contracts import Link

ALL = {name: policy for name, (policy, _) in TWINS.items()} | {
    "cao_average": policy_of("cao_average", draws=64)
}
PEAK = [name for name, policy in ALL.items() if policy.constraint == "peak"]


def test_every_policy_is_here() -> None:
    assert set(registry.names("power")) <= set(ALL)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", TWINS)
def test_equal_to_the_looped_twin(name: str, linear: bool, seed: int) -> None:
    policy, twin = TWINS[name]
    link = make_link(seed, linear)
    got = solve(policy, link)
    exact = 1e-6 if name == "smcv" else 1e-9  # its twin searches for eta
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            row = (link.h[s, q], link.gain[s], link.budget[s], link.power[s, q], link.sends[s])
            p, eta, active = twin(*(value.numpy() for value in row), linear)
            assert got.p[s, q].numpy() == pytest.approx(p, rel=exact, abs=1e-3 * exact)
            assert got.eta[s, q].item() == pytest.approx(eta, rel=exact)
            assert (got.active[s, q].numpy() == active).all()


@pytest.mark.parametrize("name", ALL)
def test_single_precision_agrees(name: str) -> None:
    link = make_link(3)
    got, expected = solve(ALL[name], single_precision(link)), solve(ALL[name], link)
    assert got.p.dtype == torch.complex64
    assert got.eta.dtype == torch.float32
    torch.testing.assert_close(got.p, expected.p.to(torch.complex64), rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(got.eta, expected.eta.float(), rtol=2e-5, atol=0)


@pytest.mark.parametrize("name", PEAK)
def test_peak_policies_are_within_every_budget(name: str) -> None:
    """|p|^2 m <= P for every device and segment. `full` meets it with equality, `ci`, `gbma` and
    `blind` for exactly one device of a segment, and the optimal policies for at least one."""
    for seed in range(5):
        link = make_link(seed)
        used = solve(ALL[name], link).p.abs().square() * link.power / link.budget[:, None]
        assert used.max() <= 1 + 1e-9
        tight = ((used - 1).abs() < 1e-9).sum(-1)
        if name == "full":
            assert torch.equal(tight, link.sends.sum(-1)[:, None].expand_as(tight))
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
    off = ~link.sends[:, None].expand(-1, SEGMENTS, -1)
    assert (got.p[off] == 0).all()
    assert not got.active[off].any()
    for factor in (1e-6, 1e3):
        faded = changed(
            link,
            h=torch.where(off, factor * link.h, link.h),
            power=torch.where(off, factor * link.power, link.power),
        )
        other = solve(ALL[name], faded)
        torch.testing.assert_close(other.p, got.p)
        torch.testing.assert_close(other.eta, got.eta)


@pytest.mark.parametrize("name", ALL)
def test_scaled_symbols_change_nothing_that_arrives(name: str) -> None:
    """Ten times the amplitude: a tenth of p, and c as before."""
    link = make_link(11)
    got, other = (solve(ALL[name], changed(link, power=f * link.power)) for f in (1.0, 100.0))
    torch.testing.assert_close(other.p, got.p / 10)
    torch.testing.assert_close(arrived(link, other), arrived(link, got))


@pytest.mark.parametrize("name", ALL)
def test_nobody_sends(name: str) -> None:
    """A trial without senders stays finite."""
    link = make_link(4)
    sends = link.sends.clone()
    sends[0] = False
    got = solve(ALL[name], changed(link, sends=sends))
    assert (got.p[0] == 0).all()
    assert not got.active[0].any()
    assert (torch.isfinite(got.eta) & (got.eta > 0)).all()
    assert torch.isfinite(torch.view_as_real(got.p)).all()


@pytest.mark.parametrize("budget", [1.0, 1e12])
@pytest.mark.parametrize("name", ALL)
def test_zero_updates_and_dead_channels_do_not_make_nan(name: str, budget: float) -> None:
    """Single precision, budgets of a normalised and a physical link; all symbols zero in one
    segment, one device's in the other, and a channel that is zero."""
    link = make_link(10)
    power, h = link.power.clone(), link.h / math.sqrt(budget)
    power[:, 0] = 0.0
    power[:, 1, 3] = 0.0
    h[:, :, 1] = 0.0
    parts = {"budget": budget * link.budget, "gain": link.gain / budget}
    single = single_precision(changed(link, power=power, h=h, **parts))
    got = solve(ALL[name], single)
    assert torch.isfinite(torch.view_as_real(got.p)).all()
    assert not got.eta.isnan().any()
    assert (got.eta > 0).all()
    assert torch.isfinite(arrived(single, got)).all()
    if ALL[name].constraint == "peak":
        used = got.p.abs().square() * single.power / single.budget[:, None]
        assert (used <= 1 + 1e-5).all()


@pytest.mark.parametrize("seed", range(4))
def test_full_minimises_the_mean_squared_error(seed: int) -> None:
    link = make_link(seed)
    got = solve(ALL["full"], link)
    arrives = (link.h * got.p).real.numpy()
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            args = (arrives[s, q], link.power[s, q].numpy() * link.sends[s].numpy())
            found = optimize.minimize_scalar(
                lambda log_root, args=args: mse(math.exp(log_root), *args),
                bounds=(-10, 10),
                method="bounded",
                options={"xatol": 1e-10},
            )
            root = got.eta[s, q].sqrt().item()
            assert root == pytest.approx(math.exp(found.x), rel=1e-6)
            assert mse(root, *args) <= found.fun * (1 + 1e-12)


def one_device(**fields: object) -> Link:
    """h = 1, P = 2, m = 1."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    link = Link(
        h=one.to(torch.complex128),
        gain=one[0],
        budget=2 * one[0],
        power=one,
        noise=N * one[0, 0],
        sends=one[0].bool(),
        linear=True,
        hyper={},
    )
    return changed(link, **fields)


@pytest.mark.parametrize("name", ["full", "cao_static"])
def test_one_device_by_hand(name: str) -> None:
    """Unit power, h = 1, P = 2: sqrt(eta) = (1/2 + 2) / sqrt(2), c = 4/5, and the error (1/5)^2 +
    1/2 / (25/8) = 1/5."""
    got = solve(ALL[name], one_device())
    assert got.eta.item() == pytest.approx(25 / 8)
    assert (got.p.real / got.eta.sqrt()).item() == pytest.approx(0.8)
    assert mse(got.eta.sqrt().item(), got.p.real.numpy(), torch.ones(1).numpy()) == pytest.approx(
        0.2
    )


@pytest.mark.parametrize("name", ["none", "ci", "multi_antenna_ci", "tci", "tci, peak", "cotaf"])
def test_inversion_arrives_with_gain_one(name: str) -> None:
    link = make_link(4)
    got = solve(ALL[name], link)
    c = link.h * got.p / got.eta.sqrt()[..., None]
    torch.testing.assert_close(c, got.active.to(c.dtype), rtol=0, atol=1e-12)


def test_multi_antenna_ci_is_ci_behind_the_combiner() -> None:
    """With one antenna, and with the scalar channel of any f; it asks for uniform forcing."""
    link = make_link(5)
    one, other = solve(ALL["ci"], link), solve(ALL["multi_antenna_ci"], link)
    assert torch.equal(one.p, other.p)
    assert torch.equal(one.eta, other.eta)
    assert registry.settings("power", "multi_antenna_ci").receiver == "uniform_forcing"


def test_gbma_pre_compensates_the_phase_only() -> None:
    link = make_link(5)
    got = solve(ALL["gbma"], link)
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
    got = solve(policy_of("gbma", gain_target=target), link)
    bound = torch.where(link.sends[:, None], link.budget[:, None] / link.power, math.inf)
    energy = bound.amin(-1)
    factor = math.pi / 4 if target == "amplitude" else 1.0
    torch.testing.assert_close(got.eta, energy * link.gain[:, :1] * factor)


def test_mean_reference_is_the_papers_oracle_scaling() -> None:
    """reference mean: gamma = P / mean m for gbma, P / (mean m E1(g_th)) for tci, over the devices
    that send; without count_policy_power, E1 is left out. gbma is then an average policy."""
    link = make_link(7)
    link = changed(link, budget=link.budget[:, :1].expand_as(link.budget))
    count = link.sends.sum(-1)[:, None]
    gamma = link.budget[:, :1] * count / (link.power * link.sends[:, None]).sum(-1)
    policy = policy_of("gbma", reference="mean")
    assert policy.constraint == "average"
    got = solve(policy, link)
    torch.testing.assert_close(got.p.abs().amax(-1).square(), gamma)
    ratio = (HYPER["threshold"] / link.gain).numpy()
    cost = torch.from_numpy(special.exp1(ratio))[:, :1] / link.gain[:, :1]
    for counted, expected in ((True, gamma / cost), (False, gamma)):
        policy = policy_of("tci", reference="mean", count_policy_power=counted, relative=False)
        torch.testing.assert_close(solve(policy, link).eta, expected)


def test_tci_silence_and_peak_power() -> None:
    """Devices below the threshold are silent, those just above it are above their budget on
    average constraints, and at it under a peak constraint."""
    link = make_link(8, spread=False)
    link = changed(link, budget=link.budget[:, :1].expand_as(link.budget))
    weak = torch.full_like(link.h, math.sqrt(HYPER["threshold"]) * 1.0001j)
    weak[..., 0] *= 0.999
    for name, least, most in (("tci", 1.2, math.inf), ("tci, peak", 0.999, 1.0)):
        got = solve(ALL[name], changed(link, h=weak))
        assert not got.active[..., 0].any()
        used = (got.p.abs().square() / link.budget[:, None])[got.active]
        assert ((used > least) & (used <= most)).all()


@pytest.mark.parametrize("fields", [{"reference": "mean"}, {"count_policy_power": False}])
def test_tci_peak_refuses_averages(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="constraint: peak bounds each device"):
        policy_of("tci", constraint="peak", **fields)


@pytest.mark.parametrize("name", ["tci", "tci, peak", "cotaf"])
def test_everybody_silent_stays_finite(name: str) -> None:
    link = make_link(9)
    assert ALL[name].may_be_silent
    got = solve(ALL[name], changed(link, h=1e-3 * link.h))
    assert not got.active.any()
    assert (got.p == 0).all()
    assert (torch.isfinite(got.eta) & (got.eta > 0)).all()


@pytest.mark.parametrize("options", [{}, {"constraint": "peak"}, {"count_policy_power": False}])
@pytest.mark.parametrize("name", ["tci", "cotaf"])
def test_relative_thresholds_mean_the_same_with_a_path_loss(
    name: str, options: dict[str, Any]
) -> None:
    """A path loss of 120 dB that every device's power makes up for changes nothing that arrives; at
    a mean gain of 1, relative and absolute are the same."""
    options = options if name == "tci" else {}
    link = make_link(11)
    one = changed(link, h=link.h / link.gain.mean(1).sqrt()[:, None, None])
    one = changed(one, gain=link.gain / link.gain.mean(1, keepdim=True))
    far = changed(one, h=1e-6 * one.h, gain=1e-12 * one.gain, budget=1e12 * one.budget)
    near, absolute, distant = (
        solve(policy_of(name, relative=relative, **options), which)
        for relative, which in ((True, one), (False, one), (True, far))
    )
    assert 0 < near.active.sum() < near.active.numel()
    for got, h in ((absolute, one.h), (distant, far.h)):
        assert torch.equal(got.active, near.active)
        arrives = got.p * h / got.eta.sqrt()[..., None]
        torch.testing.assert_close(arrives, near.p * one.h / near.eta.sqrt()[..., None])
    torch.testing.assert_close(distant.p, 1e6 * near.p)
    torch.testing.assert_close(distant.eta, near.eta)
