"""What simulated time costs: the clock by itself, its share of a round, and a day of a thousand
devices, in processor time. Prints a Markdown page.

    OMP_NUM_THREADS=1 python benchmarks/clock.py > benchmarks/clock.md

Names of tables as arguments print these alone: clock, stacks, shares, softmax, day.
"""

from __future__ import annotations

import gc
import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import simpy
import torch
from page import name_machine

from otafl.clock.array_clock import ArrayClock
from otafl.clock.event_clock import EventClock
from otafl.clock.trial_clock import TrialClock
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

DAY_S, CYCLE_S, AIRTIME_S = 86400.0, 60.0, 1e-3
ASYNCHRONOUS = Rules(1, max_ready=1, late="next", broadcast_first=False)
PROTOCOLS = {
    "rounds": Rules(),
    "rounds, a deadline that half of them miss": Rules(deadline_s=CYCLE_S),
    "a slot every 10 s": Rules(0, 10.0, late="next", broadcast_first=False),
    "quorum of 10": Rules(10, late="next", broadcast_first=False),
    "asynchronous": ASYNCHRONOUS,
}
QUICKSTART: dict[str, Any] = {
    "name": "clock",
    "data": "digits",
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "channel": "rayleigh",
    "devices": {"count": 100},
    "training": {"rounds": 100000, "local_steps": 5, "batch_size": 20},
}
IN_A_ROUND = (
    "wait_for_devices",
    "are_all_available",
    "begin",
    "admit",
    "close_slot",
)
"""Everything that a round of the quickstart asks of the clock, `now` aside."""


def hardware(devices: int, batteries: bool = False) -> Hardware:
    """[K], on mains, or on a battery that lasts for some cycles and charges meanwhile."""
    own = Fixed().build_hardware(devices, np.random.default_rng(0))
    if not batteries:
        return own
    one = np.ones(devices)
    full = {"battery_j": 500 * one, "charge_j": 250 * one, "restart_j": 50 * one}
    return replace(own, **full, harvest_w=0.8 * one, sleep_w=0.01 * one)


def life(device: int) -> Iterator[tuple[float, bool]]:
    """An hour here, half an hour away, in the mean."""
    generator, at_s, there = np.random.default_rng([1, device]), 0.0, True
    while True:
        at_s += generator.exponential(3600.0 if there else 1800.0)
        there = not there
        yield at_s, there


def spin(devices: int, rules: Rules, duration_s: float, **settings: Any) -> tuple[float, int]:
    """Devices work for about a minute each, transmit, and begin again. Processor seconds, and
    updates that were sent. batteries, leave: see `hardware` and `life`."""
    batteries, leave = settings.get("batteries", False), settings.get("leave", False)
    lives = [life(device) if leave else None for device in range(devices)]
    clock = TrialClock(hardware(devices, batteries), rules, lives, settings.get("log", False))
    work_s = CYCLE_S * np.random.default_rng(0).uniform(0.5, 1.5, 1 << 16)
    times, joules = work_s.tolist(), [1e-6] * devices
    zeros, watts = [0.0] * devices, [1.0] * devices
    # those who transmitted are those who are free, unless some are dropped, leave or run empty
    known = rules.late == "next" and not (batteries or leave)
    free, sent, round = list(range(devices)), 0, 0
    gc.collect()
    gc.freeze()
    began = time.process_time()
    while clock.get_time_s() < duration_s and clock.wait_for_devices():
        count = len(free)
        first = round * devices % (len(times) - devices)
        clock.start(round, free, zeros[:count], times[first : first + count], watts[:count])
        slot = clock.admit()
        clock.transmit(AIRTIME_S, joules)
        sent += len(slot.on_time)
        free = slot.on_time if known else np.flatnonzero(clock.get_available()).tolist()
        round += 1
    spent_s = time.process_time() - began
    gc.unfreeze()
    return spent_s, sent


def measure_clock() -> None:
    """Microseconds for each update, at 100 devices."""
    cases: dict[str, tuple[Rules, dict[str, Any]]] = {n: (r, {}) for n, r in PROTOCOLS.items()}
    cases["asynchronous, timeline kept"] = ASYNCHRONOUS, {"log": True}
    cases["asynchronous, batteries"] = ASYNCHRONOUS, {"batteries": True}
    cases["asynchronous, batteries, leaving"] = ASYNCHRONOUS, {"batteries": True, "leave": True}
    for name, (rules, settings) in cases.items():
        runs = [spin(100, rules, DAY_S / 10, **settings) for _ in range(5)]
        update = statistics.median(1e6 * seconds / sent for seconds, sent in runs)
        row(f"100 devices, {name}", "an update that is sent", f"{update:.1f} us")


def measure_stacks(devices: int = 10, turns: int = 7) -> None:
    """Microseconds for a round of a trial, with SimPy and with arrays, in turn."""
    for trials in (1, 10, 100, 1000):
        spent: dict[bool, list[float]] = {False: [], True: []}
        for _, is_plain in itertools.product(range(turns), spent):
            spent[is_plain].append(spin_stack(trials, devices, is_plain))
        title = f"{devices} devices, {trials:,} trials, rounds"
        for is_plain, what in ((False, "SimPy"), (True, "arrays")):
            row(
                title, f"{what}, a round of a trial", f"{statistics.median(spent[is_plain]):.3g} us"
            )
        ratios = [slow / fast for slow, fast in zip(*spent.values(), strict=True)]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        row(title, "SimPy / arrays", f"{middle:.3g} ({low:.3g} to {high:.3g})")


def spin_stack(trials: int, devices: int, is_plain: bool) -> float:
    """Microseconds for a round of a trial, of devices that work for about a minute each."""
    own = Hardware.stack([hardware(devices)] * trials)
    clock = ArrayClock(own) if is_plain else EventClock(own, [Rules()] * trials, [[]] * trials)
    size, rounds = trials * devices, max(3, 2000 // trials)
    work_s = CYCLE_S * np.random.default_rng(0).uniform(0.5, 1.5, size)
    all_devices, watts = np.arange(size), np.ones(size)
    airtime_s, joules = np.full(trials, AIRTIME_S), np.full((trials, devices), 1e-6)
    gc.collect()
    gc.freeze()
    began = time.process_time()
    for round in range(rounds):
        clock.wait_for_devices()
        clock.begin(round, all_devices, np.zeros(size), work_s, watts, np.zeros(trials))
        clock.admit()
        clock.close_slot(airtime_s, joules, np.full(joules.shape, AIRTIME_S))
    spent_s = time.process_time() - began
    gc.unfreeze()
    return 1e6 * spent_s / (rounds * trials)


def share(
    trials: int,
    hidden: list[int],
    devices: int = 100,
    steps: int = 5,
    rounds: int = 20,
    turns: int = 7,
) -> None:
    """Processor time in the clock over that of the round it is part of."""
    model = {"name": "mlp", "hidden": hidden} if hidden else "softmax_regression"
    training = {**QUICKSTART["training"], "local_steps": steps}
    sections = {"model": model, "trials": trials, "devices": {"count": devices}}
    loaded = load_scenario({**QUICKSTART, **sections, "training": training})
    points = expand(loaded)
    engine = Engine(assemble(points, range(trials)))
    spent: list[float] = []
    clock = engine.parts.clock
    for name in IN_A_ROUND:
        setattr(clock, name, time_calls(getattr(clock, name), spent))
    shares, micros, whole, t = [], [], [], 0
    gc.collect()
    gc.freeze()
    for turn in range(turns + 1):
        spent.clear()
        began = time.process_time()
        for _ in range(rounds):
            engine.run_round(t)
            t += 1
        if turn:  # the first warms up
            took_s = time.process_time() - began
            shares.append(100 * sum(spent) / took_s)
            micros.append(1e6 * sum(spent) / (rounds * trials * devices))
            whole.append(1e6 * took_s / (rounds * trials))
    gc.unfreeze()
    sizes = "-".join(map(str, [64, *hidden, 10]))
    title = f"FedAvg, {sizes}, {steps} steps of 20, {devices} devices, {trials:,} stacked"
    middle, low, high = statistics.median(shares), min(shares), max(shares)
    row(title, "clock's share of a round", f"{middle:.1f} % ({low:.1f} to {high:.1f})")
    row(title, "clock, a device's round", f"{statistics.median(micros):.2f} us")
    row(title, "all of a trial's round", f"{statistics.median(whole):.0f} us")


def time_calls(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        began = time.process_time()
        out = function(*args)
        spent.append(time.process_time() - began)
        return out

    return call


def day() -> None:
    """A thousand asynchronous devices, a cycle a minute, without learning."""
    title = "a day of 1,000 asynchronous devices, a cycle a minute"
    seconds, sent = spin(1000, ASYNCHRONOUS, DAY_S)
    row(title, "updates sent", f"{sent:,}")
    row(title, "processor time", f"{seconds:.0f} s")


def row(title: str, what: str, value: str) -> None:
    print(f"| {title} | {what} | {value} |", flush=True)


def measure_shares() -> None:
    for trials, hidden in ((1, [32]), (10, [32]), (1, [256, 256])):
        share(trials, hidden)


def measure_softmax() -> None:
    """Softmax regression of ten devices in a thousand trials."""
    share(1000, [], devices=10, steps=1)


TABLES: dict[str, Callable[[], None]] = {
    "clock": measure_clock,
    "stacks": measure_stacks,
    "shares": measure_shares,
    "softmax": measure_softmax,
    "day": day,
}


def main() -> None:
    torch.set_num_threads(1)
    print("# What simulated time costs\n")
    print("Made by `OMP_NUM_THREADS=1 python benchmarks/clock.py > benchmarks/clock.md`:")
    print("processor time of one thread; medians, shares and ratios with their range.\n")
    print(f"{name_machine()}, simpy {simpy.__version__}, Python {platform.python_version()}\n")
    print("| case | figure | measured |\n|---|---|---|")
    for name in sys.argv[1:] or TABLES:
        TABLES[name]()


if __name__ == "__main__":
    main()
