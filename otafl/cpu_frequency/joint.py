"""CPU frequency and transmit power of a digital uplink with the least energy by the deadline.

The problem is that of Yang et al. for one device, when n devices share the band evenly. A device
computes for C / f seconds and transmits b bits in t seconds, C / f + t <= D = T - t_down. With
OFDMA it has 1/n of the band B for these t seconds. With TDMA it has the whole band for t / n of
them, as the slot is taken to be n equal turns. At the share s of its full power, at which its SNR
is rho, it transmits

    b = t B / n * factor log2(1 + s rho)   or   s(t) = (e^(a / t) - 1) / rho,                   (1)
                                                a = n b ln 2 / (B factor)

where rho is divided by the gap, and with OFDMA has the power in 1/n of the noise. The energy is

    F(t) = kappa f^2 C + c t (e^(a / t) - 1) + w t,   f = max(f_min, C / (D - t))               (2)

with c = P_max / (rho efficiency) and the power w of the circuits, both divided by n with TDMA. F is
convex. With x = a / t its slope is, where f > f_min,

    F'(t) = 2 kappa C^3 / (D - t)^3 + w - c h(x),   h(x) = 1 + (x - 1) e^x.                     (3)

t lies between a / ln(1 + rho), at full power, and D - C / f_max, at full speed. If the lowest
frequency leaves enough time, h(x) = w / c is the optimum, which has a closed form with Lambert's W,

    x = 1 + W((w / c - 1) / e).                                                                 (4)

The plan makes these assumptions:

- The channel is that of the first blocks in the device's channel estimate.
- Several cells of the channel are replaced by the flat channel with the same rate at full power. At
  lower power it has at most the rate of the cells.
- The rate is Shannon's with the transport's gap.
- n is the number of devices that begin in this round together.
- The transmission begins when the local work ends.

The simulated slot opens for all devices when the last one is ready, so it can end later than
planned. A device that cannot meet the deadline computes at the highest frequency and transmits at
full power.

References
----------
Yang, Chen, Saad, Hong, Shikh-Bahaei 2021, "Energy Efficient Federated Learning Over Wireless
    Communication Networks".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy import special

from otafl.core.problems import Problem, make_problem
from otafl.cpu_frequency.base import (
    CpuFrequency,
    CpuSpeed,
    FrequencySetup,
    Task,
    needs_deadline,
)

TOLERANCE = 1e-14
"""Relative accuracy of t."""

MAX_STEPS = 200


@dataclass(frozen=True)
class EnergyBalance:
    """Energy of local work and transmission of N devices, in the symbols of the module's equations.

    Parameters
    ----------
    cycles : ndarray, [N]
        Cycles C of the local work.
    kappa : ndarray, [N]
        Effective switched capacitance in J s^2 / cycle^3.
    slowest_hz, fastest_hz : ndarray, [N]
        Lowest and highest frequency, f_min and f_max.
    time_s : ndarray, [N]
        Time D for local work and transmission.
    a, c : ndarray, [N]
        Constants of the transmission.
    circuit_w : ndarray, [N]
        Power w of the circuits.
    rho : ndarray, [N]
        SNR at full power, divided by the gap.
    """

    cycles: np.ndarray
    kappa: np.ndarray
    slowest_hz: np.ndarray
    fastest_hz: np.ndarray
    time_s: np.ndarray
    a: np.ndarray
    c: np.ndarray
    circuit_w: np.ndarray
    rho: np.ndarray

    def compute_frequency_hz(self, t: np.ndarray) -> np.ndarray:
        """Compute the frequency that leaves t seconds, within the range of the hardware."""
        with np.errstate(divide="ignore"):
            needed = self.cycles / np.maximum(self.time_s - t, 0.0)
        return np.clip(needed, self.slowest_hz, self.fastest_hz)

    def compute_power(self, t: np.ndarray) -> np.ndarray:
        """Compute the share s(t) of full power, at most 1."""
        return np.minimum(1.0, np.expm1(self.a / t) / self.rho)  # eq. (1)

    def compute_joules(self, t: np.ndarray) -> np.ndarray:
        """Compute the energy F(t) in joules."""
        local = self.kappa * self.compute_frequency_hz(t) ** 2 * self.cycles
        return local + self.c * t * np.expm1(self.a / t) + self.circuit_w * t  # eq. (2)

    def compute_slope(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute F'(t) above the lowest frequency, and F''(t)."""
        x, left_s = self.a / t, self.time_s - t
        growth = self.c * np.exp(x) * x**2 / t
        local = 2 * self.kappa * (self.cycles / left_s) ** 3
        value = local + self.circuit_w - self.c * _h(x)  # eq. (3)
        return value, 3 * local / left_s + growth


def solve_airtime_s(p: EnergyBalance) -> np.ndarray:
    """Solve for the time of transmission t [N] with the least energy.

    It is nan if a device is too slow even at the highest frequency and full power.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shortest = p.a / np.log1p(p.rho)
        longest = p.time_s - p.cycles / p.fastest_hz
        possible = shortest <= longest
        free = p.a / _invert_h(p.circuit_w / p.c)  # cheapest transmission without a deadline
        relaxed = p.time_s - p.cycles / p.slowest_hz  # time that the lowest frequency leaves
        least = np.clip(np.minimum(free, relaxed), shortest, longest)
        falls = possible & (free > relaxed) & (p.compute_slope(least)[0] < 0)
        t = np.where(falls, longest, least)
        rows = np.flatnonzero(falls & (p.compute_slope(longest)[0] > 0))
    if len(rows):
        some = EnergyBalance(*(value[rows] for value in vars(p).values()))
        t[rows] = _find_root(some.compute_slope, least[rows], longest[rows])
    return np.where(possible, t, np.nan)


class JointFrequency(CpuFrequency):
    """CPU frequency and power with the least energy."""

    class Settings(CpuFrequency.Settings):
        example: ClassVar = {
            "devices.deadline_s": 0.1,
            "transport": {"name": "digital", "constraint": "peak"},
        }

        name: Literal["joint"] = "joint"

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from needs_deadline(scenario)
            transport = scenario.transport
            if not transport.has_access_plan:
                text = (
                    "'joint' plans the power of transport 'digital' with rate shannon, over_budget "
                    "drop, and either gain_threshold 0 or constraint peak with shares all; got "
                    f"transport '{transport.name}'"
                )
                yield make_problem(text, "devices.cpu_frequency", "transport")

    def __init__(self, settings: Settings, setup: FrequencySetup) -> None:
        super().__init__(settings, setup)
        if setup.uplink is None:
            raise ValueError("uplink: got None; the joint choice needs an orthogonal uplink")
        self._uplink = setup.uplink
        self._bandwidth_hz = setup.budget.bandwidth_hz.double().cpu().numpy()
        self._full_w = setup.budget.tx_power_w.double().cpu().numpy()

    def choose_speed(self, task: Task) -> CpuSpeed:
        balance = self._build_balance(task)
        t = solve_airtime_s(balance)
        late = np.isnan(t)
        with np.errstate(invalid="ignore"):
            frequency = np.where(late, balance.fastest_hz, balance.compute_frequency_hz(t))
            power = np.where(late, 1.0, balance.compute_power(t))
        return CpuSpeed(frequency, power)

    def _build_balance(self, task: Task) -> EnergyBalance:
        """Build the energy balance of a task's devices."""
        hardware, uplink = self.setup.hardware.select_rows(task.trial, task.device), self._uplink
        n = np.bincount(task.trial)[task.trial].astype(float)
        turns = uplink.access == "tdma"
        rate = self._bandwidth_hz[task.trial]
        rho = self._compute_rho(task, np.ones_like(n) if turns else n)
        on_air = 1 / n if turns else np.ones_like(n)  # share of t
        full_w = self._full_w[task.trial, task.device] / hardware.efficiency
        with np.errstate(divide="ignore"):
            c = on_air * full_w / rho
        return EnergyBalance(
            cycles=task.count_cycles(hardware),
            kappa=hardware.kappa,
            slowest_hz=hardware.frequency_min_hz,
            fastest_hz=hardware.frequency_hz,
            time_s=task.deadline_s - task.downlink_s,
            a=n * uplink.bits(task.num_coordinates) * np.log(2) / rate,
            c=c,
            circuit_w=on_air * hardware.circuit_w,
            rho=rho,
        )

    def _compute_rho(self, task: Task, parts: np.ndarray) -> np.ndarray:
        """Compute the SNR [N] at full power, divided by the gap.

        It is that of the flat channel with the rate of the device's cells, with all power in
        1/parts of the noise.
        """
        state, budget = task.channel, self.setup.budget.budget
        h_hat = self._uplink.csi.estimate(state.h, state.gain, task.round)
        trial = torch.from_numpy(task.trial).to(h_hat.device)
        device = torch.from_numpy(task.device).to(h_hat.device)
        own = (
            h_hat[trial, device].flatten(2).abs().square().sum(1)
        )  # power gain of each cell, over all antennas
        scale = (budget * state.gain)[trial, device]
        cells = (own.double() * scale.double()[:, None]).cpu().numpy()
        snr = cells * (parts / self._uplink.gap[task.trial])[:, None]
        return np.expm1(np.log1p(snr).mean(1))


def _h(x: np.ndarray) -> np.ndarray:
    """Compute 1 + (x - 1) e^x."""
    return x * np.exp(x) - np.expm1(x)


def _invert_h(h: np.ndarray) -> np.ndarray:
    """Solve _h(x) = h for x >= 0."""
    root = np.sqrt(2 * h)
    near = root * (
        1 - root / 3 + 11 / 72 * root**2
    )  # a series, because W loses digits at its branch point
    x = 1 + special.lambertw((h - 1) / math.e).real  # eq. (4)
    x = x - (_h(x) - h) / (x * np.exp(x))
    return np.where(h < 1e-8, near, x)


def _find_root(
    slope: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Find the zero of an increasing function [N] between low and high.

    `slope` returns the function and its derivative. Newton's method is used, with bisection if its
    step leaves the bracket or is longer than half of the last one. The rows are independent.
    """
    at, step = (low + high) / 2, high - low
    done = np.zeros(len(at), dtype=bool)
    for _ in range(MAX_STEPS):
        value, rise = slope(at)
        low, high = np.where(value > 0, low, at), np.where(value > 0, at, high)
        newton = at - value / rise
        good = (newton >= low) & (newton <= high)
        good &= np.abs(newton - at) <= np.maximum(step / 2, TOLERANCE * at)
        new = np.where(good, newton, (low + high) / 2)
        step = np.abs(new - at)
        at = np.where(done, at, new)
        done |= step <= TOLERANCE * at
        if done.all():
            break
    return at
