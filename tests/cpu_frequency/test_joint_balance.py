"""The joint choice of frequency and power against fine grids and the optimum's own conditions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from otafl.cpu_frequency.joint import EnergyBalance, solve_airtime_s

pytestmark = pytest.mark.exact


def balances(count: int, seed: int = 5) -> EnergyBalance:
    """Of every kind: bounded by each of the bounds, with and without circuits, impossible."""
    rng = np.random.default_rng(seed)

    def spread(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(math.log(low), math.log(high), count))

    fastest = spread(5e8, 3e9)
    return EnergyBalance(
        cycles=spread(1e7, 3e9),
        kappa=spread(1e-29, 1e-26),
        slowest_hz=fastest * rng.uniform(0.02, 1.0, count),
        fastest_hz=fastest,
        time_s=spread(0.1, 100.0),
        a=spread(1e-3, 30.0),
        c=spread(1e-6, 1.0),
        circuit_w=np.where(rng.random(count) < 0.5, 0.0, spread(1e-4, 1.0)),
        rho=spread(0.1, 1e4),
    )


def rows(balance: EnergyBalance, index: np.ndarray) -> EnergyBalance:
    return EnergyBalance(*(value[index] for value in vars(balance).values()))


def bounds(balance: EnergyBalance) -> tuple[np.ndarray, np.ndarray]:
    shortest = balance.a / np.log1p(balance.rho)
    return shortest, balance.time_s - balance.cycles / balance.fastest_hz


def test_joint_against_a_fine_grid_and_a_general_minimiser() -> None:
    balance = balances(150)
    t = solve_airtime_s(balance)
    low, high = bounds(balance)
    np.testing.assert_array_equal(np.isnan(t), low > high)
    possible = np.flatnonzero(~np.isnan(t))
    seen = {"power": 0, "full": 0, "slowest": 0, "free": 0, "between": 0}
    for k in possible:
        one = rows(balance, np.array([k]))
        many = rows(balance, np.full(2001, k))
        grid = many.compute_joules(np.linspace(low[k], high[k], 2001)).min()
        found = minimize_scalar(
            lambda at, one=one: one.compute_joules(np.array([at]))[0],
            bounds=(low[k], high[k]),
            method="bounded",
        )
        own = one.compute_joules(t[[k]])[0]
        assert own <= min(grid, found.fun) * (1 + 1e-10)
        frequency = one.compute_frequency_hz(t[[k]])[0]
        at_power, at_slowest = t[k] == low[k], frequency == one.slowest_hz[0]
        free = at_slowest and one.cycles[0] / frequency + t[k] < one.time_s[0] * (1 - 1e-9)
        fast = "full" if t[k] == high[k] else "between"
        kind = "power" if at_power else "free" if free else "slowest" if at_slowest else fast
        seen[kind] += 1
    assert min(seen.values()) >= 3, seen


def test_joint_without_work_or_without_transmission() -> None:
    """Hardly any work: the whole time is for sending. Hardly any bits: the deadline's frequency."""
    base = rows(balances(1), np.zeros(1, dtype=int))
    one = np.ones(1)
    common = replace(
        base, kappa=1e-28 * one, slowest_hz=1e3 * one, fastest_hz=1e9 * one, circuit_w=0 * one
    )
    common = replace(common, time_s=2 * one, c=0.1 * one, rho=100 * one)
    idle = replace(common, cycles=1e3 * one, a=0.5 * one)
    np.testing.assert_allclose(solve_airtime_s(idle), 2.0, rtol=1e-3)
    silent = replace(common, cycles=1e9 * one, a=1e-9 * one)
    np.testing.assert_allclose(silent.compute_frequency_hz(solve_airtime_s(silent)), 5e8, rtol=1e-4)
