"""`lyapunov`: its queues by hand, and the problem that it solves in a slot, against numerical
minimisation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from support.energy_slots import Slots, make_slot_link
from support.power_links import perturb

from otafl.power.energy import inverse_scaling

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
