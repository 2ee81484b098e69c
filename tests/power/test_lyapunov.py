"""`lyapunov`: its queues by hand, and the problem that it solves in a slot, against numerical
minimisation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from support.energy_slots import F64, Slots, make_slot_link
from support.power_links import N, make_link, perturb
from torch import Tensor

from otafl.power.lyapunov import inverse_scaling

pytestmark = pytest.mark.exact


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


@pytest.mark.parametrize("battery", [math.inf, 2.0])
def test_unequal_symbols_and_prices(battery: float) -> None:
    """The scalars minimise V K / M [sum m (c - 1)^2 + N / eta] + sum_k Q_k |p_k|^2 m_k / P_k: no
    neighbour does better that is within peak and battery."""
    link = perturb(make_link(3), segment_lengths=torch.tensor([3.0, 5.0], dtype=F64), num_symbols=8)
    energy = battery * link.budget  # eight symbols would take 8 P
    link = perturb(link, energy_budget=energy)
    slots = Slots("lyapunov", v=[0.5, 5.0, 50.0], average_db=[-6.0] * 3)
    slots.state = torch.from_numpy(np.random.default_rng(0).uniform(0, 3, (3, 6)))
    queue = slots.state.clone()
    got = slots(link)
    there = link.transmit_mask[:, None]
    m = link.symbol_power * there

    def cost(amplitude: Tensor, root: Tensor) -> Tensor:
        c = link.h.abs() * amplitude / root[..., None]
        error = (m * (c - 1).square()).sum(-1) + N / root.square()
        energy = queue[:, None] * amplitude.square() * m / link.budget[:, None]
        return slots.hyper["v"][:, None] * error * there.sum(-1) / m.sum(-1) + energy.sum(-1)

    amplitude, root = got.p.abs(), got.eta.sqrt()
    best = cost(amplitude, root)
    most = (torch.minimum(link.budget, energy / 8)[:, None] / link.symbol_power).sqrt()
    for step in (1e-3, 1e-2, 0.3):
        for sign in (-1, 1):
            assert (cost(amplitude, root * (1 + sign * step)) >= best).all()
            for k in range(6):
                other = amplitude.clone()
                other[..., k] = torch.minimum(other[..., k] * (1 + sign * step), most[..., k])
                assert (cost(other, root) >= best * (1 - 1e-12)).all()
