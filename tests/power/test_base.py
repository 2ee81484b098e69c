"""What all policies share: budgets, twins of the sheet, common scales and receive scaling.

The formula sheet of `otafl validate` as twins of the policies: one trial and segment at a time,
over the devices that send; and the first slot of `compute_budget_paced`, which the sheet does not
have.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from support.energy_slots import F64, Slots, make_budget_paced, make_slot_link
from support.link_bench import make_bench
from support.power_links import (
    ANTENNAS,
    HYPER,
    SEGMENTS,
    TRIALS,
    N,
    compute_received_gain,
    make_link,
    make_policy,
    perturb,
    solve,
)

import otafl
from otafl.core import registry
from otafl.core.contracts import Coefficients, Cohort, Group, Link
from otafl.power.base import PowerPolicy, apply_mmse_scaling
from otafl.validation import sheet

Scalars = tuple[np.ndarray, float, np.ndarray]
"""p [K], eta, active [K] of one trial and segment."""

Twin = Callable[..., Scalars]


def make_twin(rule: sheet.Rule, constraint: str = "average") -> Twin:
    """A rule of the sheet as a function of h, gain, budget, m, sends [K] and whether gains have the
    mean one."""
    config = SimpleNamespace(**HYPER, relative=False, constraint=constraint)

    def scalars(h, gain, budget, m, sends, linear) -> Scalars:  # type: ignore[no-untyped-def]
        rows = (value[sends][None] for value in (h, m, budget, gain))
        noise = np.array([N])
        found = rule(sheet.States(*rows, noise, ANTENNAS, config, linear))
        p, active = np.zeros(len(h), complex), np.zeros(len(h), bool)
        way = h.real if rule is sheet.blind_reference else h  # which sends without a phase
        p[sends] = found.c[0] * np.sqrt(found.eta[0]) / way[sends]
        active[sends] = found.active[0]
        return p, float(found.eta[0]), active

    return scalars


def compute_budget_paced(states: sheet.States) -> sheet.Scalars:
    """Invert to c_k = 1 the n devices of the largest q_k, at the least of them; n has the least
    error of the mean over all K, (K/n - 1)^2 sum_on m + sum_off m + (K/n)^2 N / eta, of those whose
    noise N / eta is not above sum_on m. The budget is that of the first slot.
    """
    share = min(1.0, 10.0 ** (states.config.energy_db / 10.0) * states.config.burst)
    q = states.root_q**2 * share
    order = np.argsort(-q, 1)
    level, m = np.take_along_axis(q, order, 1), np.take_along_axis(states.m, order, 1)
    ratio = q.shape[1] / np.arange(1, q.shape[1] + 1)
    on, noise = m.cumsum(1), states.noise[:, None] / level
    cost = (ratio - 1.0) ** 2 * on + m.sum(1, keepdims=True) - on + ratio**2 * noise
    cost = np.where(noise <= on, cost, np.inf)
    eta = np.take_along_axis(level, cost.argmin(1)[:, None], 1)
    active = (q >= eta * (1.0 - 1e-12)) & np.isfinite(cost).any(1, keepdims=True)
    return sheet.Scalars(active.astype(float), np.where(active.any(1), eta[:, 0], 1.0), active)


TWINS: dict[str, tuple[PowerPolicy, Twin]] = {
    "genie": (make_policy("genie"), make_twin(sheet.genie_reference)),
    "full": (make_policy("full"), make_twin(sheet.full_reference)),
    "ci": (make_policy("ci"), make_twin(sheet.ci_reference)),
    "multi_antenna_ci": (make_policy("multi_antenna_ci"), make_twin(sheet.ci_reference)),
    "tci": (make_policy("tci", relative=False), make_twin(sheet.tci_reference)),
    "tci, peak": (
        make_policy("tci", constraint="peak", relative=False),
        make_twin(sheet.tci_reference, constraint="peak"),
    ),
    "gbma": (make_policy("gbma"), make_twin(sheet.gbma_reference)),
    "cotaf": (make_policy("cotaf", relative=False), make_twin(sheet.cotaf_reference)),
    "cao_static": (make_policy("cao_static"), make_twin(sheet.cao_static_reference)),
    "smcv": (make_policy("smcv", variation=HYPER["variation"]), make_twin(sheet.smcv_reference)),
    "blind": (make_policy("blind"), make_twin(sheet.blind_reference)),
    "open_loop": (make_policy("open_loop"), make_twin(sheet.open_loop)),
    "budget_paced": (make_policy("budget_paced"), make_twin(compute_budget_paced)),
    "lyapunov": (
        make_policy("lyapunov"),
        make_twin(sheet.cao_static_reference),
    ),  # while its queues are empty
}
"""Every registered policy but `cao_average`, whose multipliers have tests of their own."""


ALL = (
    {name: make_policy(name) for name in registry.list_names("power")}
    | {name: policy for name, (policy, _) in TWINS.items()}
    | {"cao_average": make_policy("cao_average", draws=64)}
)
PEAK = [name for name, policy in ALL.items() if policy.power_constraint == "peak"]


@pytest.mark.exact
def test_every_policy_is_here() -> None:
    assert set(registry.list_names("power")) <= set(ALL)


def used_power(link: Link, p: torch.Tensor) -> torch.Tensor:
    """|p|^2 m over the budget, [S, Q, K]."""
    return p.abs().square() * link.symbol_power / link.budget[:, None]


@pytest.mark.exact
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


@pytest.mark.exact
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
    torch.testing.assert_close(loud.p, got.p / 10)
    torch.testing.assert_close(louder, arrives)
    sends = link.transmit_mask.clone()
    sends[0] = False
    nobody = solve(ALL[name], perturb(link, transmit_mask=sends))
    assert (nobody.p[0] == 0).all()
    assert (torch.isfinite(nobody.eta) & (nobody.eta > 0)).all()


@pytest.mark.twin
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", TWINS)
def test_equal_to_the_formula_sheet(name: str, linear: bool) -> None:
    policy, twin = TWINS[name]
    link = make_link(0, linear)
    got = solve(policy, link)
    for s in range(TRIALS):
        for q in range(SEGMENTS):
            row = (
                link.h[s, q],
                link.gain[s],
                link.budget[s],
                link.symbol_power[s, q],
                link.transmit_mask[s],
            )
            p, eta, active = twin(*(value.numpy() for value in row), linear)
            assert got.p[s, q].numpy() == pytest.approx(p, rel=1e-9, abs=1e-12)
            assert got.eta[s, q].item() == pytest.approx(eta, rel=1e-9)
            assert (got.active_mask[s, q].numpy() == active).all()


POLICY = {name: policy for name, (policy, _) in TWINS.items()}


@pytest.mark.exact
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


@pytest.mark.exact
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


@pytest.mark.exact
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


@pytest.mark.exact
@pytest.mark.parametrize(
    ("policy", "weighting", "snr_db"),
    [("gbma", "mean", 40.0), ("gbma", "none", -30.0), ("tci", "none", 40.0)],
)
def test_transmit_power_is_gamma(policy: str, weighting: str, snr_db: float) -> None:
    """Rows of power 1 (as they would be without sqrt(w_k) = 1/2): |p|^2 is gamma or gamma / |h|^2,
    eta what makes the sum unbiased, and the recorded power gamma, whatever the SNR asks."""
    gamma, devices = 2.5, 4
    options = {"gamma": gamma}
    link = make_bench(policy, range(TRIALS), devices, snr_db, threshold=0.1, policy_options=options)
    pair = torch.arange(TRIALS * devices)
    weight = torch.full((TRIALS * devices,), 1 / devices, dtype=F64)
    cohort = Cohort.create(pair // devices, pair % devices, weight, (devices,) * TRIALS, devices)
    x = torch.ones(TRIALS * devices, 6, dtype=F64) * (0.5 if weighting == "none" else 1.0)
    _, report = link.deliver((Group({"x": x}, weighting=weighting),), cohort)
    h, p = report.saved_tensors["h/0"][:, 0], report.saved_tensors["p/0"][:, 0]
    scale = gamma * (devices if weighting == "none" else 1)
    active = h.abs().square() >= 0.1 if policy == "tci" else torch.ones_like(h, dtype=torch.bool)
    expected = scale / h.abs().square() if policy == "tci" else torch.full_like(h.abs(), scale)
    torch.testing.assert_close(p.abs().square(), expected * active)
    assert (h * p).imag.abs().max() < 1e-9
    target = torch.pi / 4 if policy == "gbma" and weighting == "mean" else 1.0
    torch.testing.assert_close(
        report.saved_tensors["eta/0"][:, 0], torch.full((TRIALS,), scale * target, dtype=F64)
    )
    power = gamma / h.abs().square() if policy == "tci" else torch.full_like(h.abs(), gamma)
    torch.testing.assert_close(report.power, power * active)


@pytest.mark.exact
def test_slots_of_nobody_are_not_counted() -> None:
    """As a trial alone would not have them; and stacked trials have budgets of their own."""
    one = make_slot_link([1.0])
    nobody = perturb(one, transmit_mask=torch.tensor([[False]]))
    with_them, without = make_budget_paced(), make_budget_paced()
    got = [float(with_them.power(x).sum()) for x in (one, nobody, nobody, one)]
    assert got == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert [float(without.power(one).sum()) for _ in range(2)] == pytest.approx([1.0, 1.0])
    queue, other = (Slots("lyapunov", v=10.0, average_db=-6.0) for _ in range(2))
    for x in (one, nobody, one):
        queue(x)
    for x in (one, one):
        other(x)
    assert torch.equal(queue.state, other.state)


@pytest.mark.exact
@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_segments_are_charged_by_their_symbols(name: str) -> None:
    """Three segments of 2, 3 and 5 symbols and unlike channels: the charge is sum |p|^2 m times
    symbols, for a queue in slots at full power."""
    lengths = torch.tensor([2.0, 3.0, 5.0], dtype=F64)
    link = perturb(
        make_slot_link([1.0, 0.5]),
        h=torch.tensor([[1.0, 0.5], [0.3, 1.2], [2.0, 0.1]], dtype=torch.complex128)[None],
        symbol_power=torch.tensor([[1.0, 2.0], [0.5, 1.0], [3.0, 1.0]], dtype=F64)[None],
        segment_lengths=lengths,
    )
    if name == "budget_paced":
        slots = make_budget_paced()
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state.left, 40.0 - energy)
        assert slots.state.ahead.item() == 3.0
    else:
        slots = Slots(name, v=10.0, average_db=-20.0)
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state, energy / 20.0 - 0.01)
    assert (energy > 0).all()


@pytest.mark.exact
def test_multi_antenna_ci_is_ci_behind_the_combiner() -> None:
    """With one antenna, and with the scalar channel of any f; it asks for uniform forcing."""
    link = make_link(5)
    one, other = (solve(make_policy(name), link) for name in ("ci", "multi_antenna_ci"))
    torch.testing.assert_close(one.p, other.p)
    torch.testing.assert_close(one.eta, other.eta)
    assert make_policy("multi_antenna_ci").receiver == "uniform_forcing"
    assert make_policy("multi_antenna_ci").is_inversion


@pytest.mark.exact
def test_tci_peak_refuses_averages() -> None:
    with pytest.raises(ValueError, match="constraint: peak bounds each device"):
        make_policy("tci", constraint="peak", reference="mean")


@pytest.mark.exact
@pytest.mark.parametrize(
    ("channel", "csi", "least"),
    [
        ({"name": "awgn"}, "perfect", 0.9999),
        ({"name": "awgn", "path_loss_db": 110, "antennas": 1}, "perfect", 0.9999),
        ({"name": "awgn"}, {"name": "error", "variance": 0.1}, 0.1),
        ({"name": "rayleigh"}, "perfect", 0.1),
        ({"name": "rician", "k_factor_db": 20}, "perfect", 0.1),
    ],
)
def test_the_threshold_of_cotaf_follows_the_channel(channel: Any, csi: Any, least: float) -> None:
    """Over awgn the receive scaling is that of the budget, eta = P g / m."""
    base = {"name": "x", "data": "digits", "algorithm": "fedavg", "csi": csi, "channel": channel}
    few = {"devices": {"count": 5}, "trials": 2, "power": "cotaf", "output": {"save_link": True}}
    training = {"rounds": 1, "local_steps": 1, "batch_size": 5}
    given = otafl.run(
        base | few | {"training": training, "power": {"name": "cotaf", "h_min": 1e-3}}
    )
    found = otafl.run(base | few | {"training": training})
    ratio = (found["link_eta_0"] / given["link_eta_0"]) ** 0.5
    np.testing.assert_allclose(ratio.values, least / 1e-3, rtol=1e-4)
