"""Choose clock and transmit power of a digital uplink for the least energy by the deadline.

The problem is that of Yang et al. for one device, with n devices sharing the band evenly. A
device works for C / f seconds and transmits b bits in t seconds, C / f + t <= D = T - t_down. It
has 1/n of the band B for these t seconds (OFDMA), or the whole band for t / n of them (TDMA): the
slot is taken to be n equal turns. At the share s of its full power, at which its SNR is rho, it has

    b = t B / n * factor log2(1 + s rho)   or   s(t) = (e^(a / t) - 1) / rho,                   (1)
                                                a = n b ln 2 / (B factor)

where rho, lowered by the gap, has the power in 1/n of the noise with OFDMA. Energy spent is

    F(t) = kappa f^2 C + c t (e^(a / t) - 1) + w t,   f = max(f_min, C / (D - t))               (2)

with c = P_max / (rho efficiency) and the circuits' power w, both divided by n with TDMA. F is
convex, and with x = a / t its slope where f > f_min is

    F'(t) = 2 kappa C^3 / (D - t)^3 + w - c h(x),   h(x) = 1 + (x - 1) e^x.                     (3)

t lies between a / ln(1 + rho), full power, and D - C / f_max, full speed. Where the slowest
frequency leaves time enough, h(x) = w / c decides, which has a closed form with Lambert's W,

    x = 1 + W((w / c - 1) / e).                                                                 (4)

Planned with: the channel's first blocks as the device believes them; where it has several cells,
the flat channel that carries as much at full power (it carries no more than they do at less);
Shannon's rate with the transport's factor and gap; n, those who begin in this round together; and a
transmission that begins when the local work is done. The simulated slot opens for all at once, when
the last is ready, so it may end later than planned. A device that cannot make it runs and transmits
at full power.

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
from scipy.special import lambertw

from otafl.core.problems import Problem, make_problem
from otafl.cpu_frequency.base import (
    CpuFrequency,
    CpuSpeed,
    DeadlineShare,
    FrequencySetup,
    Task,
    needs_deadline,
)

TOLERANCE = 1e-14
"""t is found to this share of it."""

MAX_STEPS = 200


@dataclass(frozen=True)
class EnergyBalance:
    """Weigh local work against transmission, of N devices; [N] each: C, kappa, f_min, f_max, D, a,
    c, w and rho of the module's equations."""

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
        """Return the frequency that leaves t seconds, within the hardware's range."""
        with np.errstate(divide="ignore"):
            needed = self.cycles / np.maximum(self.time_s - t, 0.0)
        return np.clip(needed, self.slowest_hz, self.fastest_hz)

    def compute_power(self, t: np.ndarray) -> np.ndarray:
        """Return the share of full power, at most 1."""
        return np.minimum(1.0, np.expm1(self.a / t) / self.rho)  # eq. (1)

    def compute_joules(self, t: np.ndarray) -> np.ndarray:
        """Return F, the joules of t seconds on air and of the work in the rest."""
        local = self.kappa * self.compute_frequency_hz(t) ** 2 * self.cycles
        return local + self.c * t * np.expm1(self.a / t) + self.circuit_w * t  # eq. (2)

    def compute_slope(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return F' above the slowest frequency, and F''."""
        x, left_s = self.a / t, self.time_s - t
        growth = self.c * np.exp(x) * x**2 / t
        local = 2 * self.kappa * (self.cycles / left_s) ** 3
        value = local + self.circuit_w - self.c * _h(x)  # eq. (3)
        return value, 3 * local / left_s + growth


def solve_airtime_s(p: EnergyBalance) -> np.ndarray:
    """Return t of least energy [N]; nan where even full speed and full power are too slow."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shortest = p.a / np.log1p(p.rho)
        longest = p.time_s - p.cycles / p.fastest_hz
        possible = shortest <= longest
        free = p.a / _invert_h(p.circuit_w / p.c)  # cheapest to transmit, if there were time
        relaxed = p.time_s - p.cycles / p.slowest_hz  # what the slowest frequency leaves
        least = np.clip(np.minimum(free, relaxed), shortest, longest)
        falls = possible & (free > relaxed) & (p.compute_slope(least)[0] < 0)
        t = np.where(falls, longest, least)
        rows = np.flatnonzero(falls & (p.compute_slope(longest)[0] > 0))
    if len(rows):
        some = EnergyBalance(*(value[rows] for value in vars(p).values()))
        t[rows] = _find_root(some.compute_slope, least[rows], longest[rows])
    return np.where(possible, t, np.nan)


class JointFrequency(CpuFrequency):
    class Settings(CpuFrequency.Settings):
        example: ClassVar = {"devices.deadline_s": 0.1, "transport.name": "digital"}

        name: Literal["joint"] = "joint"
        share: DeadlineShare = 1.0

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from needs_deadline(scenario)
            transport = scenario.transport
            if not transport.has_access_plan:
                text = (
                    "'joint' plans the power of transport 'digital' with rate shannon, over_budget "
                    f"drop and no gain_threshold; got transport '{transport.name}'"
                )
                yield make_problem(text, "devices.cpu_frequency", "transport")

    def __init__(self, settings: Settings, setup: FrequencySetup) -> None:
        super().__init__(settings, setup)
        if setup.uplink is None:
            raise ValueError("the joint choice of frequency and power needs a digital uplink")
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
        """Return the equations of a task's devices."""
        hardware, uplink = self.setup.hardware.select_rows(task.trial, task.device), self._uplink
        n = np.bincount(task.trial)[task.trial].astype(float)
        turns = uplink.access == "tdma"
        rate = self._bandwidth_hz[task.trial] * uplink.rate_factor[task.trial]
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
            time_s=self.settings.share * task.deadline_s - task.downlink_s,
            a=n * uplink.bits(task.num_coordinates) * np.log(2) / rate,
            c=c,
            circuit_w=on_air * hardware.circuit_w,
            rho=rho,
        )

    def _compute_rho(self, task: Task, parts: np.ndarray) -> np.ndarray:
        """Return the SNR [N] at full power, lowered by the gap, of the flat channel that carries as
        much as the device's cells, where all its power is in one of so many parts of the noise."""
        state, budget = task.channel, self.setup.budget.budget
        h_hat = self._uplink.csi.estimate(state.h, state.gain, task.round)
        trial = torch.from_numpy(task.trial).to(h_hat.device)
        device = torch.from_numpy(task.device).to(h_hat.device)
        own = h_hat[trial, device].flatten(2).abs().square().sum(1)  # cells of all antennas
        scale = (budget * state.gain)[trial, device]
        cells = (own.double() * scale.double()[:, None]).cpu().numpy()
        snr = cells * (parts / self._uplink.gap[task.trial])[:, None]
        return np.expm1(np.log1p(snr).mean(1))


def _h(x: np.ndarray) -> np.ndarray:
    """Return 1 + (x - 1) e^x."""
    return x * np.exp(x) - np.expm1(x)


def _invert_h(h: np.ndarray) -> np.ndarray:
    """Return the x >= 0 where _h(x) is this."""
    root = np.sqrt(2 * h)
    near = root * (1 - root / 3 + 11 / 72 * root**2)  # W's branch point has no digits to spare
    x = 1 + lambertw((h - 1) / math.e).real  # eq. (4)
    x = x - (_h(x) - h) / (x * np.exp(x))
    return np.where(h < 1e-8, near, x)


def _find_root(
    slope: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Find where a rising function [N] that gives its derivative too is 0, between low and high.

    It is Newton's method, with bisection where that leaves the bracket or does not halve its last
    step. A row does not depend on the others.
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
