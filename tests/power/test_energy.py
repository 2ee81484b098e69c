"""Policies with an energy budget over many slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from support.energy_slots import F64, Slots, make_budget_paced, make_slot_link
from support.power_links import perturb

from otafl.core.contracts import Link
from otafl.power.energy import inverse_scaling

pytestmark = pytest.mark.exact


def test_pacing_by_hand() -> None:
    """P = 2, so 40 of energy for four slots of ten symbols, 1 of power in the first. A slot that
    the device is not in leaves 30 for two: 1.5 each. Nothing is left for a fifth."""
    slots = make_budget_paced()
    first = make_slot_link([1.0, 0.0])
    absent = perturb(first, transmit_mask=torch.tensor([[False, True]]))
    powers = [float(slots.power(one)[0, 0, 0]) for one in (first, absent, first, first, first)]
    assert powers == pytest.approx([1.0, 0.0, 1.5, 1.5, 0.0], abs=1e-12)
    assert not slots(first).active_mask.any()


def test_batteries_bursts_and_peaks() -> None:
    """40 for four slots. A battery of 8 leaves 2 of it a slot; a burst of 1.5 makes 1.5 of 1, and
    one of 100 no more than the peak; greedy spends at the peak until nothing is left; without a
    budget the battery alone is paced, and without either the peak holds."""
    one = make_slot_link([10.0])

    def battery(energy: float) -> Link:
        return perturb(one, energy_budget=torch.tensor([[energy]], dtype=F64))

    assert float(make_budget_paced().power(battery(8.0))) == pytest.approx(0.2)
    assert float(make_budget_paced().power(battery(math.inf))) == pytest.approx(1.0)
    assert float(make_budget_paced(burst=1.5).power(one)) == pytest.approx(1.5)
    assert float(make_budget_paced(burst=100.0).power(one)) == pytest.approx(2.0)
    greedy = make_budget_paced(spend="greedy")
    got = [float(greedy.power(one)) for _ in range(4)]
    assert got == pytest.approx([2.0, 2.0, 0.0, 0.0])
    alone = Slots("budget_paced", {"energy_db": None}, rounds=4.0, burst=1.0)
    assert float(alone.power(battery(20.0))) == pytest.approx(0.5)
    assert float(alone.power(battery(15.0))) == pytest.approx(0.5)
    assert float(Slots("budget_paced", rounds=4.0, burst=1.0).power(one)) == pytest.approx(2.0)
    capped = Slots("lyapunov", v=10.0, average_db=0.0)
    for energy, power in ((5.0, 0.5), (0.0, 0.0), (math.inf, 2.0), (1e6, 2.0)):
        assert float(capped.power(battery(energy))) == pytest.approx(power)


def test_pacing_never_overspends() -> None:
    """Neither the life budget nor the peak of a slot, over 40 slots of fading; with a burst of two
    nearly all is used."""
    slots = make_budget_paced(energy_db=-6.0, rounds=40.0, burst=2.0)
    h = np.abs(np.random.default_rng(5).standard_normal((2, 40, 6))).sum(0)
    power = torch.stack([slots.power(make_slot_link(list(row), 10.0))[0, 0] for row in h])
    assert power.max() <= 10.0 * (1 + 1e-12)
    share = power.mean(0) / (10.0 * 10**-0.6)
    assert share.max() <= 1 + 1e-12
    assert share.mean() > 0.8


def objective(
    a: np.ndarray, root_u: float, reach: np.ndarray, price: np.ndarray, w: np.ndarray, noise: float
) -> float:
    """sum w [(x a - 1)^2 + mu a^2] + N/M u."""
    return float((w * ((root_u * reach * a - 1) ** 2 + price * a**2)).sum() + noise * root_u**2)


@pytest.mark.parametrize("seed", range(3))
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


def test_queues_by_hand() -> None:
    """One device, h = 1, m = 1, P = 2, V = 0.2, e_bar = 1/4. Without a queue it sends at its peak,
    e = 1, so Q = 3/4, and mu = Q / V = 15/4: q / mu = 8/15 > N / M = 1/2, barely worth it. A slot
    that it is not in takes off e_bar if another one is there."""
    slots = Slots("lyapunov", v=0.2, average_db=10 * math.log10(0.25))
    one = make_slot_link([1.0, 0.7], transmit_mask=torch.tensor([[True, False]]))
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
        slots(perturb(one, transmit_mask=torch.tensor([[False, True]])))
        assert slots.state[0, 0].item() == pytest.approx(max(before - 0.25 * slot, 0.0))
