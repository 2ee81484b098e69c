"""Laws of the simulated clock: energy is conserved, and waiting follows queueing theory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from otafl import clock
from otafl.clock.event_clock import EventClock
from otafl.clock.trial_clock import TrialClock
from otafl.core.rng import Streams
from otafl.devices import compute
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import ACTIVITIES
from otafl.devices.protocols import Rules
from otafl.scenario import load_scenario
from otafl.validation.bench import CONFORMANCE, Bench
from otafl.validation.checks import (
    Check,
    check_at_most,
    check_distribution,
    check_exact,
    check_mean,
    state_law,
)

TRIALS, DEVICES, ROUNDS = 4, 12, 60
WATTS = {"circuit_w": 0.7, "receive_w": 0.4, "idle_w": 0.2, "sleep_w": 0.05}
BATTERY = {"battery_j": 5.0, "charge": 0.6, "restart": 0.5, "harvest_w": 0.3}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "rounds": {},
    "deadline": {"deadline_s": 2.0, "late": "next"},
    "asynchronous": {"protocol": "asynchronous"},
}
CONSERVED = "charge(0) + harvested = charge(t) + spent"


@dataclass(frozen=True)
class ClockCourse:
    """Clock after some rounds, and the energies that were charged.

    Parameters
    ----------
    clock : Clock
        The clock.
    charge_j : ndarray, [S, K]
        Charge at the start.
    computed_j, radiated_j : ndarray, [S, K]
        Energy of local work, watts times seconds, and of transmissions.
    """

    clock: EventClock
    charge_j: np.ndarray
    computed_j: np.ndarray
    radiated_j: np.ndarray


def _run_clock(bench: Bench, devices: dict[str, Any], parts: dict[str, float]) -> ClockCourse:
    """Run rounds of random work on devices with given batteries and radios."""
    section = {"count": DEVICES, "compute": {"name": "fixed"} | parts} | devices
    scenario = load_scenario({"name": "clock", "devices": section})
    streams = Streams([0] * TRIALS, list(range(TRIALS)), bench.torch_device)
    sections = [scenario.devices] * TRIALS
    hardware = compute.build([one.compute for one in sections], DEVICES, streams)
    clocks = clock.build(sections, hardware, streams, log=True)
    draw = streams.make_generators(CONFORMANCE)[0]
    assert isinstance(clocks, EventClock)
    begin_j = clocks.compute_charge_j()
    computed, radiated = np.zeros((2, TRIALS, DEVICES))
    for round in range(bench.scale_size(ROUNDS)):
        clocks.wait_for_devices()
        there = clocks.get_available()
        rows = int(there.sum())
        seconds, watts = draw.exponential(1.0, rows), draw.uniform(0.5, 1.5, rows)
        computed[there] += seconds * watts
        participants = [row.nonzero()[0] for row in there]
        clocks.begin(round, participants, draw.uniform(0.0, 0.5, rows), seconds, watts)
        joules = draw.uniform(0.0, 1.0, (TRIALS, DEVICES))
        admitted = clocks.admit()
        radiated[admitted] += joules[admitted]
        airtime_s = draw.uniform(0.5, 1.0, TRIALS)
        clocks.close_slot(airtime_s, joules, airtime_s[:, None] * draw.random((TRIALS, DEVICES)))
    return ClockCourse(clocks, begin_j, computed, radiated)


@state_law("clock: energy balance", CONSERVED, "{}", PROTOCOLS)
def _balance(bench: Bench, protocol: str) -> Iterator[Check]:
    """Compare the energy from the batteries with the energy that devices spent.

    It covers work, slots, sleep, empty batteries and recharging.
    """
    course = _run_clock(bench, PROTOCOLS[protocol], WATTS | BATTERY)
    now_j = course.clock.compute_charge_j()
    spent = course.clock.compute_spent_j().sum(2)
    harvested = np.stack([trial.power.compute_harvested_j() for trial in course.clock.trials])
    off = course.charge_j + harvested - now_j - spent
    yield check_exact(0.0, float(np.abs(off).max()), 1e-9, "joules off")
    offered = BATTERY["harvest_w"] * course.clock.get_time_s()[:, None]
    yield check_at_most(1.0, float((harvested / offered).max()), 1e-9, "of the harvest taken up")
    yield check_at_most(BATTERY["battery_j"], float(now_j.max()), 1e-9, "charge")
    table = course.clock.build_timeline()
    assert table is not None
    empty = int((table["activity"] == ACTIVITIES.index("empty")).sum())
    yield Check(1.0, float(empty > 0), 1.0, 1.0, "batteries ran out")


SERVICE_S = 1.0
LOADS = ("load {:g}", (0.3, 0.6))
BATCHES = 40


def _measure_slots(
    rules: Rules, devices: int, mean_s: float, slots: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds at which every update is ready, and at which its slot begins.

    Devices compute for exponential times, and start again after each transmission.
    """
    draw = np.random.default_rng(seed)
    hardware = Fixed().build_hardware(devices, draw)
    trial, free = TrialClock(hardware, rules, log=True), list(range(devices))
    for round in range(slots):
        none = [0.0] * len(free)
        trial.start(round, free, none, draw.exponential(mean_s, len(free)).tolist(), none)
        free = trial.admit().on_time
        trial.transmit(SERVICE_S if free else 0.0)
    history = trial.history()
    waits = {
        (one.device, one.round): one.end_s - one.start_s
        for one in history
        if one.activity == "wait"
    }
    sent = [one for one in history if one.activity == "transmit"]
    start_s = np.array([one.start_s for one in sent])
    return start_s - [waits.get((one.device, one.round), 0.0) for one in sent], start_s


def _measure_waits(rules: Rules, devices: int, mean_s: float, slots: int, seed: int) -> np.ndarray:
    """Return the seconds from ready to its slot of every update."""
    ready_s, start_s = _measure_slots(rules, devices, mean_s, slots, seed)
    return start_s - ready_s


def _average_batches(values: np.ndarray) -> np.ndarray:
    """Average a correlated series over long batches, which are nearly independent."""
    length = len(values) // BATCHES
    means: np.ndarray = values[: length * BATCHES].reshape(BATCHES, length).mean(1)
    return means


ONE_BY_ONE = Rules(1, max_ready=1, late="next", broadcast_first=False)


@state_law("clock: wait of a busy uplink", "Pollaczek and Khinchine; M/D/1 queue", *LOADS)
def _busy_uplink(bench: Bench, load: float) -> Iterator[Check]:
    """Compare mean and mean square of the wait for slots that take one device each.

    Devices that compute for long make arrivals nearly Poisson. The mean is W = load D / (2 (1 -
    load)). First come, first served, the mean square is 2 W^2 + load D^2 / (3 (1 - load)).
    """
    devices, slots = 2000, bench.scale_size(20_000)
    ready_s, start_s = _measure_slots(ONE_BY_ONE, devices, devices * SERVICE_S / load, slots, 5)
    waits = (start_s - ready_s)[slots // 10 :]
    mean = load * SERVICE_S / (2.0 * (1.0 - load))
    square = 2.0 * mean**2 + load * SERVICE_S**2 / (3.0 * (1.0 - load))
    yield check_mean(mean, _average_batches(waits), "mean")
    yield check_mean(square, _average_batches(waits**2), "mean square")
    overtaken = np.diff(ready_s[np.argsort(start_s)]) < -1e-6
    yield check_exact(0.0, float(overtaken.sum()), case="updates that are overtaken")


@state_law("clock: wait for periodic slots", "uniform over the period")
def _periodic_slots(bench: Bench) -> Iterator[Check]:
    """Compare the wait of devices whose work does not depend on the slots."""
    rules = Rules(0, 2.0, late="next", broadcast_first=False)
    waits = _measure_waits(rules, bench.scale_size(4000), 600.0, 200, 7)
    yield check_distribution(waits, stats.uniform(0.0, 2.0).cdf)
