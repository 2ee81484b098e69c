"""Clock frequencies against closed forms, fine grids and the optimum's own conditions; and the
digital uplink's bits, band, noise and watts by their definition.

Mutations that make a test here fail: the deadline counted from the end of the broadcast; a clock
just too slow; bounds left out or exchanged; a trial's deadline for another's; `share` left out;
2 kappa C^3 without its 2; circuits left out or not shared in turns; h without x; Lambert's W
without its 1; n left out of a, or of the SNR of parts of the band; the gap, the rate factor, the
amplifier left out; a device that is late at half power; the cells' mean SNR for what they carry;
a device that others' steps go on for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from otafl.codecs.config import IdentityConfig
from otafl.codecs.identity import Identity
from otafl.core.contracts import ChannelState, Group, LinkBudget
from otafl.devices.config_frequency import (
    DeadlineFrequencyConfig,
    FullFrequencyConfig,
    JointFrequencyConfig,
)
from otafl.devices.config_hardware import FixedComputeConfig
from otafl.devices.frequency import (
    DeadlineFrequency,
    Frequency,
    FrequencySetup,
    FullFrequency,
    OrthogonalUplink,
    Task,
)
from otafl.devices.frequency_joint import JointFrequency, Problem, airtime_s
from otafl.devices.hardware import Hardware, devices_of
from otafl.transport.config import DigitalConfig
from otafl.transport.planned import orthogonal_uplink

RNG = np.random.default_rng(3)


def hardware(trials: int, devices: int, **parts: float | np.ndarray) -> Hardware:
    """4e9 operations a second at 1 GHz, down to 0.1 GHz."""
    one = devices_of(FixedComputeConfig(flops_per_s=4e9), devices, np.random.default_rng(0))
    stack = Hardware.stack([one] * trials)
    full = np.ones((trials, devices))
    given = {"frequency_min_hz": 1e8} | parts
    return replace(stack, **{name: value * full for name, value in given.items()})


def flat_channel(trials: int, devices: int, seed: int = 0, cells: int = 1) -> ChannelState:
    generator = torch.Generator().manual_seed(seed)
    shape = (trials, devices, 2, 1, cells)
    h = torch.complex(
        *(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    )
    return ChannelState(h * math.sqrt(0.5), torch.ones(trials, devices, dtype=torch.float64))


def link_budget(trials: int, devices: int, snr: float = 10.0) -> LinkBudget:
    """1 MHz, 0.1 W of full power."""
    ones = torch.ones(trials, devices, dtype=torch.float64)
    return LinkBudget(
        budget=snr * ones,
        gain=ones,
        unit_power_w=torch.full((trials,), 0.1 / snr, dtype=torch.float64),
        bandwidth_hz=torch.full((trials,), 1e6, dtype=torch.float64),
        physical=torch.zeros(trials, dtype=torch.bool),
    )


def task(trials: int, devices: int, flops: float, deadline_s: Any, **parts: Any) -> Task:
    trial, device = np.divmod(np.arange(trials * devices), devices)
    size = len(trial)
    return Task(
        trial=trial,
        device=device,
        flops=np.full(size, flops),
        downlink_s=parts.get("downlink_s", np.full(size, 0.5)),
        deadline_s=np.broadcast_to(deadline_s, size).astype(float),
        reals=parts.get("reals", 10_000),
        channel=parts.get("channel", flat_channel(trials, devices)),
        round=0,
    )


def test_full_is_the_highest() -> None:
    setup = FrequencySetup(hardware(1, 3), link_budget(1, 3))
    pace = FullFrequency(FullFrequencyConfig(), setup).pace(task(1, 3, 4e9, 1.0))
    assert pace.frequency_hz.tolist() == [1e9] * 3
    assert pace.power is None


def test_deadline_by_hand() -> None:
    """4e8 operations are 1e8 cycles, and half a second is gone: in 1 s 2e8 Hz, in 0.2 s 5e8 Hz."""
    setup = FrequencySetup(hardware(6, 1), link_budget(6, 1))
    given = task(6, 1, 4e8, [1.0, 0.7, 0.55, 0.4, 9.0, np.inf])
    choice = DeadlineFrequency(DeadlineFrequencyConfig(), setup)
    frequency = choice.pace(given).frequency_hz
    expected = [2e8, 5e8, 1e9, 1e9, 1e8, 1e8]  # at most 1 GHz, also too late; at least 0.1
    np.testing.assert_allclose(frequency, expected, rtol=2e-9)
    half = DeadlineFrequency(DeadlineFrequencyConfig(share=0.8), setup)
    np.testing.assert_allclose(half.pace(given).frequency_hz[0], 1e8 / 0.3, rtol=2e-9)


def test_deadline_is_met_in_spite_of_rounding() -> None:
    down = RNG.uniform(0.0, 0.9, 5000)
    setup = FrequencySetup(hardware(1, 5000), link_budget(1, 5000))
    given = replace(task(1, 5000, 4e7, 1.0, downlink_s=down), flops=RNG.uniform(4e7, 3.9e8, 5000))
    frequency = DeadlineFrequency(DeadlineFrequencyConfig(), setup).pace(given).frequency_hz
    can = given.flops / 4e9 <= 1.0 - down
    ready_s = down + given.flops / 4 / frequency
    assert (ready_s[can] <= 1.0).all()
    assert (ready_s[can & (frequency > 1e8)] > 1.0 - 1e-8).all()


def problems(count: int) -> Problem:
    """Of every kind: bounded by each of the bounds, with and without circuits, impossible."""

    def spread(low: float, high: float) -> np.ndarray:
        return np.exp(RNG.uniform(math.log(low), math.log(high), count))

    fastest = spread(5e8, 3e9)
    return Problem(
        cycles=spread(1e7, 3e9),
        kappa=spread(1e-29, 1e-26),
        slowest_hz=fastest * RNG.uniform(0.02, 1.0, count),
        fastest_hz=fastest,
        time_s=spread(0.1, 100.0),
        a=spread(1e-3, 30.0),
        c=spread(1e-6, 1.0),
        circuit_w=np.where(RNG.random(count) < 0.5, 0.0, spread(1e-4, 1.0)),
        rho=spread(0.1, 1e4),
    )


def rows(problem: Problem, index: np.ndarray) -> Problem:
    return Problem(*(value[index] for value in vars(problem).values()))


def bounds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    shortest = problem.a / np.log1p(problem.rho)
    return shortest, problem.time_s - problem.cycles / problem.fastest_hz


def test_joint_against_a_fine_grid_and_a_general_minimiser() -> None:
    problem = problems(300)
    t = airtime_s(problem)
    low, high = bounds(problem)
    np.testing.assert_array_equal(np.isnan(t), low > high)
    possible = np.flatnonzero(~np.isnan(t))
    seen = {"power": 0, "full": 0, "slowest": 0, "free": 0, "between": 0}
    for k in possible:
        one = rows(problem, np.array([k]))
        many = rows(problem, np.full(2001, k))
        grid = many.joules(np.linspace(low[k], high[k], 2001)).min()
        found = minimize_scalar(
            lambda at, one=one: one.joules(np.array([at]))[0],
            bounds=(low[k], high[k]),
            method="bounded",
        )
        own = one.joules(t[[k]])[0]
        assert own <= min(grid, found.fun) * (1 + 1e-10)
        frequency = one.frequency_hz(t[[k]])[0]
        at_power, at_slowest = t[k] == low[k], frequency == one.slowest_hz[0]
        free = at_slowest and one.cycles[0] / frequency + t[k] < one.time_s[0] * (1 - 1e-9)
        fast = "full" if t[k] == high[k] else "between"
        kind = "power" if at_power else "free" if free else "slowest" if at_slowest else fast
        seen[kind] += 1
    assert min(seen.values()) >= 5, seen


def test_joint_meets_the_conditions_of_the_optimum() -> None:
    """Stationary inside; at a bound, the slope points out of the range."""
    problem = problems(4000)
    t = airtime_s(problem)
    low, high = bounds(problem)
    keep = np.flatnonzero(~np.isnan(t))
    some, t, low, high = rows(problem, keep), t[keep], low[keep], high[keep]
    frequency = some.frequency_hz(t)
    assert (t >= low).all()
    assert (t <= high * (1 + 1e-15)).all()
    assert (some.cycles / frequency + t <= some.time_s * (1 + 1e-12)).all()
    relaxed = some.time_s - some.cycles / some.slowest_hz
    inside = (t > low) & (t < high)
    above = inside & (t > relaxed)
    value, rise = some.slope(t)
    assert above.sum() > 100
    np.testing.assert_allclose((value / rise / t)[above], 0.0, atol=1e-12)
    x = some.a / t
    transmit = some.circuit_w - some.c * (x * np.exp(x) - np.expm1(x))  # slope at f_min
    scale = some.circuit_w + some.c * (x * np.exp(x) - np.expm1(x))
    below = inside & (t < relaxed)
    assert below.sum() > 100
    np.testing.assert_allclose((transmit / scale)[below], 0.0, atol=1e-9)
    at_kink = inside & (t == relaxed)
    assert at_kink.sum() > 100
    assert (transmit[at_kink] <= 0).all()
    assert (value[at_kink] >= 0).all()
    at_full_speed = t == high
    assert at_full_speed.sum() > 30
    assert (value[at_full_speed] <= 0).all()
    at_power = (t == low) & (t < high)
    slope = np.where(t >= relaxed, value, transmit)
    assert (slope[at_power] >= -1e-9 * scale[at_power]).all()


def test_joint_of_a_device_does_not_depend_on_the_others() -> None:
    problem = problems(400)
    alone = [airtime_s(rows(problem, np.array([k]))) for k in range(400)]
    np.testing.assert_array_equal(airtime_s(problem), np.concatenate(alone))


def test_joint_spends_less_the_longer_it_has() -> None:
    problem = rows(problems(50), np.repeat(np.arange(50), 40))
    longer = replace(problem, time_s=problem.time_s * np.tile(np.linspace(1, 4, 40), 50))
    t = airtime_s(longer)
    joules = np.nan_to_num(longer.joules(t), nan=np.inf).reshape(50, 40)
    both = np.isfinite(joules[:, :-1])
    assert (joules[:, 1:] <= joules[:, :-1] * (1 + 1e-12))[both].all()
    speed = np.where(np.isnan(t), np.inf, longer.frequency_hz(t)).reshape(50, 40)
    airtime = t.reshape(50, 40)
    assert (speed[:, 1:] <= speed[:, :-1] * (1 + 1e-9))[both].all()
    assert (airtime[:, 1:] >= airtime[:, :-1] * (1 - 1e-12))[both].all()


def test_joint_without_work_or_without_transmission() -> None:
    """Hardly any work: the whole time is for sending. Hardly any bits: the deadline's frequency."""
    base = rows(problems(1), np.zeros(1, dtype=int))
    one = np.ones(1)
    common = replace(
        base, kappa=1e-28 * one, slowest_hz=1e3 * one, fastest_hz=1e9 * one, circuit_w=0 * one
    )
    common = replace(common, time_s=2 * one, c=0.1 * one, rho=100 * one)
    idle = replace(common, cycles=1e3 * one, a=0.5 * one)
    np.testing.assert_allclose(airtime_s(idle), 2.0, rtol=1e-3)
    silent = replace(common, cycles=1e9 * one, a=1e-9 * one)
    np.testing.assert_allclose(silent.frequency_hz(airtime_s(silent)), 5e8, rtol=1e-4)


class Known:
    """Devices know their channel."""

    variance: torch.Tensor | None = None
    pilot_symbols = 0

    def estimate(self, h: torch.Tensor, gain: torch.Tensor, round: int) -> torch.Tensor:
        return h


def joint(access: str, budget: LinkBudget, made: Hardware, share: float = 1.0) -> Frequency:
    trials = len(budget.budget)
    uplink = OrthogonalUplink(
        access="ofdma" if access == "ofdma" else "tdma",
        gap=np.full(trials, 2.0),
        rate_factor=np.full(trials, 0.8),
        bits=lambda reals: 32.0 * reals,
        csi=Known(),
    )
    return JointFrequency(JointFrequencyConfig(share=share), FrequencySetup(made, budget, uplink))


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_joint_energy_by_definition(access: str) -> None:
    """Against a grid over t of what the issue's equations say of bits, band, noise and watts."""
    trials, n, deadline = 2, 3, np.repeat([2.0, 4.0], 3)
    budget, circuits = link_budget(trials, n), 0.02
    made = hardware(trials, n, circuit_w=circuits, efficiency=0.5, kappa=1e-28)
    given = task(trials, n, 1.2e9, deadline, reals=20_000)
    pace = joint(access, budget, made, share=0.9).pace(given)
    assert pace.power is not None
    cycles, band, bits = 3e8, 1e6, 32 * 20_000
    noise = 0.1 / 10.0 / band  # watts a hertz: 10 is the SNR of 0.1 W in the whole band
    strength = given.channel.h.abs().square().sum(2).flatten().numpy()
    for row in range(trials * n):
        have = 0.9 * deadline[row] - 0.5
        t = np.linspace(0.02, have - cycles / 1e9, 400_001)
        own_band, own_s = (band / n, t) if access == "ofdma" else (band, t / n)
        snr = 2.0 ** (bits / (own_s * own_band * 0.8)) - 1
        watts = 2.0 * snr * noise * own_band / strength[row]
        f = np.maximum(1e8, cycles / (have - t))
        joules = 1e-28 * f**2 * cycles + (watts / 0.5 + circuits) * own_s
        best = np.argmin(np.where(watts <= 0.1, joules, np.inf))
        np.testing.assert_allclose(pace.frequency_hz[row], f[best], rtol=3e-4)
        np.testing.assert_allclose(pace.power[row], watts[best] / 0.1, rtol=3e-4)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_joint_does_not_depend_on_who_else_is_stacked(access: str) -> None:
    budget, made = link_budget(3, 4), hardware(3, 4)
    channel = flat_channel(3, 4, seed=5)
    deadline = np.repeat([1.3, 2.0, 9.0], 4)
    whole = joint(access, budget, made).pace(task(3, 4, 1.2e9, deadline, channel=channel))
    for trial in range(3):
        one = Hardware(*(value[[trial]] for value in vars(made).values()))
        own = ChannelState(channel.h[[trial]], channel.gain[[trial]])
        given = task(1, 4, 1.2e9, deadline[4 * trial], channel=own)
        alone = joint(access, link_budget(1, 4), one).pace(given)
        here = slice(4 * trial, 4 * trial + 4)
        np.testing.assert_array_equal(whole.frequency_hz[here], alone.frequency_hz)
        assert whole.power is not None
        np.testing.assert_array_equal(whole.power[here], alone.power)


def test_joint_that_is_late_does_all_it_can() -> None:
    given = task(1, 2, 4e9, [1.6, 0.3], reals=100_000)
    pace = joint("tdma", link_budget(1, 2), hardware(1, 2)).pace(given)
    assert pace.frequency_hz.tolist() == [1e9, 1e9]
    assert pace.power is not None
    assert pace.power.tolist() == [1.0, 1.0]


def test_several_cells_carry_at_least_what_is_planned() -> None:
    budget, made = link_budget(1, 5), hardware(1, 5)
    channel = flat_channel(1, 5, seed=2, cells=12)
    pace = joint("ofdma", budget, made).pace(task(1, 5, 1.2e9, 3.0, channel=channel))
    assert pace.power is not None
    assert (pace.power < 0.9).all()
    t = 3.0 - 0.5 - 3e8 / pace.frequency_hz  # the slowest frequency alone would take longer
    cells = 10.0 * 5 / 2.0 * channel.h.abs().square().sum(2).flatten(2)[0].numpy()
    carried = t * 1e6 / 5 * 0.8 * np.log2(1 + pace.power[:, None] * cells).mean(1)
    assert (carried >= 32 * 10_000 * (1 - 1e-9)).all()
    assert (carried <= 32 * 10_000 * 1.5).all()


def test_bits_and_gap_of_a_digital_uplink() -> None:
    hyper = {
        "snr_gap_db": torch.tensor([3.0, 0.0]),
        "margin_db": torch.tensor([1.0, 2.0]),
        "rate_factor": torch.tensor([0.5, 1.0]),
    }
    codec: Any = Identity(IdentityConfig(), {}, None)  # type: ignore[arg-type]
    uplink = orthogonal_uplink(DigitalConfig(access="ofdma"), hyper, codec, Known())
    assert uplink is not None
    assert uplink.access == "ofdma"
    np.testing.assert_allclose(uplink.gap, 10 ** np.array([0.4, 0.2]), rtol=1e-6)
    assert uplink.bits(100) == codec.bits(Group({"a": torch.zeros(1, 4, 25)})) == 3200
    sure = orthogonal_uplink(DigitalConfig(outage=False), hyper, codec, Known())
    assert sure is not None
    np.testing.assert_allclose(sure.gap, [10**0.3, 1.0], rtol=1e-6)
