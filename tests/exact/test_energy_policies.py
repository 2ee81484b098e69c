"""`budget_paced` and `lyapunov`: what they remember between slots, by hand, and the problems that
they solve in one, against numerical minimisation.

Mutations that make a test here fail: left or the queue charged without m, with |p|, without the
symbols or by segment; the slots ahead counted by call and not by symbols, or in slots of nobody;
an allowance of the whole slot for each group; the unspent energy forgotten; the battery, the burst
or the peak left out; greedy paced; the level of the most or of the fewest devices, K/a without its
square, the noise without it, the devices that are silent left out of the error; a sum below the
noise sent. Of the queue: no max with 0, e_bar in every call, V and Q swapped, K, M or m
left out of the price, the cap on a_k missing, a root of another equation, 1/eta for eta.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from scipy import optimize
from torch import Tensor
from twins.power import N, arrived, changed, make_link, policy_of, rayleigh_statistics

from otafl.core.contracts import Coefficients, Link
from otafl.engine.engine import Engine
from otafl.power import average_power
from otafl.power.lyapunov import inverse_scaling

F64 = torch.float64
SYMBOLS = 10


def link_of(
    h: list[float], budget: float = 2.0, m: list[float] | None = None, **fields: Any
) -> Link:
    """One trial, one segment of ten symbols, K devices."""
    count = len(h)
    link = Link(
        h=torch.tensor(h, dtype=torch.complex128).view(1, 1, count),
        gain=torch.ones(1, count, dtype=F64),
        budget=torch.full((1, count), budget, dtype=F64),
        power=torch.tensor(m or [1.0] * count, dtype=F64).view(1, 1, count),
        noise=torch.full((1,), N, dtype=F64),
        sends=torch.ones(1, count, dtype=torch.bool),
        linear=True,
        hyper={},
        lengths=torch.tensor([float(SYMBOLS)], dtype=F64),
        payload=SYMBOLS,
    )
    return changed(link, **fields)


class Slots:
    """A policy over slots, and the power |p|^2 m [S, Q, K] of each."""

    def __init__(self, name: str, options: dict[str, Any] | None = None, **hyper: Any) -> None:
        """hyper: stackable fields, one number or one for each trial."""
        self.policy = policy_of(name, **(options or {}))
        self.hyper = {
            n: torch.tensor(v if isinstance(v, list) else [v], dtype=F64) for n, v in hyper.items()
        }
        self.state: Any = None

    def __call__(self, link: Link) -> Coefficients:
        link = changed(link, hyper=self.hyper)
        if self.state is None:
            self.state = self.policy.prepare(rayleigh_statistics(link), link.hyper)
        self.state, got = self.policy.coefficients(self.state, link)
        assert self.state is not None
        return got

    def power(self, link: Link) -> Tensor:
        return self(link).p.abs().square() * link.power


HALF_DB = 10 * math.log10(0.5)


def paced(**options: Any) -> Slots:
    """Half of full power over four slots, without bursts."""
    hyper = {"energy_db": HALF_DB, "rounds": 4.0, "burst": 1.0} | options
    given = {n: hyper.pop(n) for n in list(hyper) if n == "spend"}
    return Slots("budget_paced", given, **hyper)


def test_pacing_by_hand() -> None:
    """P = 2, so 40 of energy for four slots of ten symbols, 1 of power in the first. A slot that
    the device is not in leaves 30 for two: 1.5 each. Nothing is left for a fifth."""
    slots = paced()
    first = link_of([1.0, 0.0])
    absent = changed(first, sends=torch.tensor([[False, True]]))
    powers = [float(slots.power(one)[0, 0, 0]) for one in (first, absent, first, first, first)]
    assert powers == pytest.approx([1.0, 0.0, 1.5, 1.5, 0.0], abs=1e-12)
    assert not slots(first).active.any()


def test_slots_of_nobody_are_not_counted() -> None:
    """As a trial alone would not have them; and stacked trials have budgets of their own."""
    one = link_of([1.0])
    nobody = changed(one, sends=torch.tensor([[False]]))
    with_them, without = paced(), paced()
    got = [float(with_them.power(x).sum()) for x in (one, nobody, nobody, one)]
    assert got == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert [float(without.power(one).sum()) for _ in range(2)] == pytest.approx([1.0, 1.0])
    queue, other = (Slots("lyapunov", v=10.0, average_db=-6.0) for _ in range(2))
    for x in (one, nobody, one):
        queue(x)
    for x in (one, one):
        other(x)
    assert torch.equal(queue.state, other.state)


@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_groups_of_a_slot_are_one_slot(name: str) -> None:
    """Two groups of six and four symbols are paced and charged as one of ten; a queue's second
    group sees what the first was charged, so V is large here."""

    def made() -> Slots:
        return paced() if name == "budget_paced" else Slots(name, v=1e9, average_db=-3.0)

    whole, cut = made(), made()
    one = link_of([1.0])
    parts = [changed(one, lengths=torch.tensor([x], dtype=F64)) for x in (6.0, 4.0)]
    for _ in range(3):
        together = float(whole.power(one).sum())
        assert [float(cut.power(part).sum()) for part in parts] == pytest.approx([together] * 2)
        if name == "lyapunov":
            torch.testing.assert_close(cut.state, whole.state)


@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_segments_are_charged_by_their_symbols(name: str) -> None:
    """Three segments of 2, 3 and 5 symbols and unlike channels: the charge is sum |p|^2 m times
    symbols, for a queue in slots at full power."""
    lengths = torch.tensor([2.0, 3.0, 5.0], dtype=F64)
    link = changed(
        link_of([1.0, 0.5]),
        h=torch.tensor([[1.0, 0.5], [0.3, 1.2], [2.0, 0.1]], dtype=torch.complex128)[None],
        power=torch.tensor([[1.0, 2.0], [0.5, 1.0], [3.0, 1.0]], dtype=F64)[None],
        lengths=lengths,
    )
    if name == "budget_paced":
        slots = paced()
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state.left, 40.0 - energy)
        assert slots.state.ahead.item() == 3.0
    else:
        slots = Slots(name, v=10.0, average_db=-20.0)
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state, energy / 20.0 - 0.01)
    assert (energy > 0).all()


def test_batteries_bursts_and_peaks() -> None:
    """40 for four slots. A battery of 8 leaves 2 of it a slot; a burst of 1.5 makes 1.5 of 1, and
    one of 100 no more than the peak; greedy spends at the peak until nothing is left; without a
    budget the battery alone is paced, and without either the peak holds."""
    one = link_of([10.0])

    def battery(energy: float) -> Link:
        return changed(one, energy=torch.tensor([[energy]], dtype=F64))

    assert float(paced().power(battery(8.0))) == pytest.approx(0.2)
    assert float(paced().power(battery(math.inf))) == pytest.approx(1.0)
    assert float(paced(burst=1.5).power(one)) == pytest.approx(1.5)
    assert float(paced(burst=100.0).power(one)) == pytest.approx(2.0)
    greedy = paced(spend="greedy")
    got = [float(greedy.power(one)) for _ in range(4)]
    assert got == pytest.approx([2.0, 2.0, 0.0, 0.0])
    alone = Slots("budget_paced", {"energy_db": None}, rounds=4.0, burst=1.0)
    assert float(alone.power(battery(20.0))) == pytest.approx(0.5)
    assert float(alone.power(battery(15.0))) == pytest.approx(0.5)
    assert float(Slots("budget_paced", rounds=4.0, burst=1.0).power(one)) == pytest.approx(2.0)
    capped = Slots("lyapunov", v=10.0, average_db=0.0)
    for energy, power in ((5.0, 0.5), (0.0, 0.0), (math.inf, 2.0), (1e6, 2.0)):
        assert float(capped.power(battery(energy))) == pytest.approx(power)


@pytest.mark.parametrize("seed", range(4))
def test_the_level_is_the_best_of_all(seed: int) -> None:
    """Over a fine grid of receive levels, by the error of a mean over those that reach it."""
    link = changed(make_link(seed), lengths=torch.tensor([3.0, 5.0], dtype=F64), payload=8)
    slots = Slots("budget_paced", rounds=[4.0] * 3, burst=[1.0] * 3, energy_db=[-9.0, -3.0, -6.0])
    got = slots(link)
    share = torch.pow(10.0, slots.hyper["energy_db"] / 10)[:, None]
    reach = (share * link.budget)[:, None].div(link.power).sqrt() * link.h.abs()

    def error(root: Tensor) -> Tensor:
        there = link.sends[:, None]
        heard = there & (reach >= root[..., None])
        k, a = there.sum(-1), heard.sum(-1)
        m = link.power * there
        ratio = k / a
        value = (ratio - 1).square() * (m * heard).sum(-1) + (m * ~heard).sum(-1)
        value = value + ratio.square() * N / root.square()
        worth = N / root.square() <= (m * heard).sum(-1)
        return torch.where(worth & (a > 0), value, math.inf)

    best = error(got.eta.sqrt() * (1 - 1e-12))
    grid = [error(torch.full_like(best, root)) for root in np.geomspace(1e-2, 1e2, 4000)]
    assert (best <= torch.stack(grid).amin(0) * (1 + 1e-9)).all()
    c = arrived(link, got)
    torch.testing.assert_close(c, got.active.to(F64), rtol=0, atol=1e-12)


def test_nobody_sends_below_the_noise() -> None:
    """h = 1 and power 0.4 under noise 1/2: one device would be below it, two are above."""
    assert not Slots("budget_paced", rounds=1.0, burst=1.0)(link_of([1.0], 0.4)).active.any()
    two = Slots("budget_paced", rounds=1.0, burst=1.0)(link_of([1.0, 1.0], 0.4))
    assert two.active.all()
    assert two.eta.item() == pytest.approx(0.4)


def test_the_level_by_hand() -> None:
    """Levels of 1, 1 and 0.21 of three: two heard are off by 2/4 + 1 + 9/4 x 1/2 = 2.625, and
    three by 1/2 / 0.21 = 2.38, at levels of 0.18 by 2.78."""
    for weakest, heard in ((0.21, 3), (0.18, 2)):
        slots = Slots("budget_paced", rounds=1.0, burst=1.0)
        got = slots(link_of([1.0, 1.0, math.sqrt(weakest)], 1.0))
        assert int(got.active.sum()) == heard


def objective(
    a: np.ndarray, root_u: float, reach: np.ndarray, price: np.ndarray, w: np.ndarray, noise: float
) -> float:
    """sum w [(x a - 1)^2 + mu a^2] + N/M u."""
    return float((w * ((root_u * reach * a - 1) ** 2 + price * a**2)).sum() + noise * root_u**2)


@pytest.mark.parametrize("seed", range(12))
def test_the_state_problem_against_numerical_minimisation(seed: int) -> None:
    """Prices over six decades, some zero: no shares and scaling that a general solver finds from
    several starts are better, and shares are within full power."""
    rng = np.random.default_rng(seed)
    count = 3
    reach = np.sqrt(10 ** rng.uniform(-1, 3) * rng.exponential(size=count))
    price = 10 ** rng.uniform(-4, 2, count) * (rng.random(count) > 0.25)
    w = rng.dirichlet(np.ones(count))
    noise = 10 ** rng.uniform(-2, 0)
    given = [torch.from_numpy(np.asarray(value)) for value in (reach, price, w, noise)]
    u = float(inverse_scaling(given[0], given[1], given[2], given[3]))
    x = math.sqrt(u) * reach
    a = np.minimum(1.0, x / np.maximum(x**2 + price, 1e-300))
    ours = objective(a, math.sqrt(u), reach, price, w, noise)
    found = []
    for _ in range(6):
        start = np.concatenate([rng.random(count), [10 ** rng.uniform(-2, 0.5)]])
        result = optimize.minimize(
            lambda z: objective(z[:-1], z[-1], reach, price, w, noise),
            start,
            method="L-BFGS-B",
            bounds=[(0, 1)] * count + [(0, None)],
            options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 1000},
        )
        found.append(float(result.fun))
    assert ours <= min(found) * (1 + 1e-9)
    assert min(found) <= ours * (1 + 1e-6)


def test_silent_where_nothing_is_worth_its_price() -> None:
    """sum w q / mu <= N / M: u = 0; just above it, it is small and positive."""
    reach, price = torch.ones(1, 2, dtype=F64), torch.full((1, 2), 4.0, dtype=F64)
    w = torch.full((1, 2), 0.5, dtype=F64)
    for noise, silent in ((0.2501, True), (0.2499, False)):
        u = inverse_scaling(reach, price, w, torch.tensor([noise], dtype=F64))
        assert (u == 0).item() == silent
        assert u.item() < 1e-2


def test_without_a_peak_it_is_the_average_powers_state_problem() -> None:
    """Prices above 1/4 never meet the peak: then the scaling is that of `cao_average`."""
    rng = np.random.default_rng(2)
    quality = torch.from_numpy(10 ** rng.uniform(-1, 3, (200, 6)))
    price = torch.from_numpy(10 ** rng.uniform(math.log10(0.26), 2, (200, 6)))
    w = torch.from_numpy(rng.dirichlet(np.ones(6), 200))
    noise = torch.from_numpy(10 ** rng.uniform(-2, 0, 200))
    theirs = average_power.inverse_scaling(quality, price, w, noise)
    torch.testing.assert_close(inverse_scaling(quality.sqrt(), price, w, noise), theirs)
    assert (theirs > 0).any()
    assert (theirs == 0).any()


def test_queues_by_hand() -> None:
    """One device, h = 1, m = 1, P = 2, V = 0.2, e_bar = 1/4. Without a queue it sends at its peak,
    e = 1, so Q = 3/4, and mu = Q / V = 15/4: q / mu = 8/15 > N / M = 1/2, barely worth it. A slot
    that it is not in takes off e_bar if another one is there."""
    slots = Slots("lyapunov", v=0.2, average_db=10 * math.log10(0.25))
    one = link_of([1.0, 0.7], sends=torch.tensor([[True, False]]))
    assert float(slots.power(one)[0, 0, 0]) == pytest.approx(2.0)
    assert slots.state[0, 0].item() == pytest.approx(0.75)
    power = float(slots.power(one)[0, 0, 0])
    # mu q / (u q + mu)^2 = 1/2 at mu = 15/4 and q = 2
    u = (math.sqrt(15) - 3.75) / 2
    x = math.sqrt(2 * u)
    assert power == pytest.approx(2 * (x / (x * x + 3.75)) ** 2)
    assert slots.state[0, 0].item() == pytest.approx(0.75 + power / 2 - 0.25)
    before = slots.state[0, 0].item()
    for slot in range(1, 6):
        slots(changed(one, sends=torch.tensor([[False, True]])))
        assert slots.state[0, 0].item() == pytest.approx(max(before - 0.25 * slot, 0.0))


@pytest.mark.parametrize("battery", [math.inf, 2.0])
def test_unequal_symbols_and_prices(battery: float) -> None:
    """The scalars minimise V K / M [sum m (c - 1)^2 + N / eta] + sum_k Q_k |p_k|^2 m_k / P_k: no
    neighbour does better that is within peak and battery."""
    link = changed(make_link(3), lengths=torch.tensor([3.0, 5.0], dtype=F64), payload=8)
    energy = battery * link.budget  # eight symbols would take 8 P
    link = changed(link, energy=energy)
    slots = Slots("lyapunov", v=[0.5, 5.0, 50.0], average_db=[-6.0] * 3)
    slots.state = torch.from_numpy(np.random.default_rng(0).uniform(0, 3, (3, 6)))
    queue = slots.state.clone()
    got = slots(link)
    there = link.sends[:, None]
    m = link.power * there

    def cost(amplitude: Tensor, root: Tensor) -> Tensor:
        c = link.h.abs() * amplitude / root[..., None]
        error = (m * (c - 1).square()).sum(-1) + N / root.square()
        energy = queue[:, None] * amplitude.square() * m / link.budget[:, None]
        return slots.hyper["v"][:, None] * error * there.sum(-1) / m.sum(-1) + energy.sum(-1)

    amplitude, root = got.p.abs(), got.eta.sqrt()
    best = cost(amplitude, root)
    most = (torch.minimum(link.budget, energy / 8)[:, None] / link.power).sqrt()
    for step in (1e-3, 1e-2, 0.3):
        for sign in (-1, 1):
            assert (cost(amplitude, root * (1 + sign * step)) >= best).all()
            for k in range(6):
                other = amplitude.clone()
                other[..., k] = torch.minimum(other[..., k] * (1 + sign * step), most[..., k])
                assert (cost(other, root) >= best * (1 - 1e-12)).all()


@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_stacked_trials_have_states_of_their_own(name: str) -> None:
    """Budgets of a sweep in one stack, payloads of two groups and changing participants: what is
    left after six rounds is what each trial alone has left."""
    key = "energy_db" if name == "budget_paced" else "average_db"
    keys: dict[str, Any] = {
        "power": {"name": name, **({"rounds": 6} if name == "budget_paced" else {"v": 1.0})},
        "algorithm": "scaffold",
        "devices.participants": 3,
        "engine.dtype": "float64",
        "trials": 2,
        "sweep": {f"power.{key}": [-12.0, -6.0]},
    }

    def state(one: Engine) -> Tensor:
        kept = one.parts.link.transport._policy_state  # type: ignore[attr-defined]
        if name == "lyapunov":
            return kept
        assert kept.ahead.abs().max() < 1e-9
        return kept.left / SYMBOLS

    stack = state(run(engine(keys), 6))
    assert stack.gt(0).any()
    for point in range(2):
        for trial in range(2):
            alone = state(run(engine(keys, trials=[trial], chosen=[point]), 6))
            torch.testing.assert_close(alone[0], stack[2 * point + trial])
