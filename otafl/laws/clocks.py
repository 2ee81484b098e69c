"""Laws of the simulated clock: energy is conserved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl import clock
from otafl.clock import Clock
from otafl.core.rng import Streams
from otafl.devices import compute
from otafl.devices.activities import ACTIVITIES, CAUSES
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import Check, check_at_most, check_exact, state_law
from otafl.laws.mutations import build_mutations, change_result, replace_by
from otafl.scenario import load_scenario

TRIALS, DEVICES, ROUNDS = 4, 12, 60
WATTS = {"circuit_w": 0.7, "receive_w": 0.4, "idle_w": 0.2, "sleep_w": 0.05}
BATTERY = {"battery_j": 5.0, "charge": 0.6, "restart": 0.5, "harvest_w": 0.3}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "rounds": {},
    "deadline": {"deadline_s": 2.0, "late": "next"},
    "asynchronous": {"protocol": "asynchronous"},
}
RADIOS: dict[str, dict[str, float]] = {"all causes": WATTS, "computing and radiating": {}}
CONSERVED = "charge(0) + harvested = charge(t) + spent"
MEASURED = "watts x seconds of the timeline"


@dataclass(frozen=True)
class Course:
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

    clock: Clock
    charge_j: np.ndarray
    computed_j: np.ndarray
    radiated_j: np.ndarray


def _run_clock(bench: Bench, devices: dict[str, Any], parts: dict[str, float]) -> Course:
    """Run rounds of random work on devices with given batteries and radios."""
    section = {"count": DEVICES, "compute": {"name": "fixed"} | parts} | devices
    scenario = load_scenario({"name": "clock", "devices": section})
    streams = Streams([0] * TRIALS, list(range(TRIALS)), bench.torch_device)
    sections = [scenario.devices] * TRIALS
    hardware = compute.build([one.compute for one in sections], DEVICES, streams)
    clocks = clock.build(sections, hardware, streams, log=True)
    draw = streams.make_generators(CONFORMANCE)[0]
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
        for trial, slot in enumerate(clocks.open_slot()):
            radiated[trial, slot.on_time] += joules[trial, slot.on_time]
        airtime_s = draw.uniform(0.5, 1.0, TRIALS)
        clocks.close_slot(airtime_s, joules, airtime_s[:, None] * draw.random((TRIALS, DEVICES)))
    return Course(clocks, begin_j, computed, radiated)


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


@state_law("clock: joules by cause", MEASURED, "{}", RADIOS)
def _cause_joules(bench: Bench, radio: str) -> Iterator[Check]:
    """Compare joules on mains with watts times the seconds of each activity.

    The energies of local work and of slots are also compared with those that the clock was given.
    """
    watts = RADIOS[radio]
    course = _run_clock(bench, {}, watts)
    table = course.clock.build_timeline()
    assert table is not None
    rate = dict.fromkeys(WATTS, 0.0) | watts
    spent = dict(zip(CAUSES, course.clock.compute_spent_j().sum((0, 1)), strict=True))
    seconds = {
        name: float((table["end_s"] - table["start_s"])[table["activity"] == place].sum())
        for place, name in enumerate(ACTIVITIES)
    }
    busy = sum(seconds[name] for name in ("receive", "compute", "wait", "transmit"))
    asleep = DEVICES * float(course.clock.get_time_s().sum()) - busy
    law = {
        "compute": float(course.computed_j.sum()),
        "transmit": float(course.radiated_j.sum()),
        "circuit": rate["circuit_w"] * seconds["transmit"],
        "receive": rate["receive_w"] * seconds["receive"],
        "idle": rate["idle_w"] * seconds["wait"] + rate["sleep_w"] * asleep,
    }
    for name, joules in law.items():
        yield check_exact(joules, float(spent[name]), 1e-9, name)


# Mutations


def _weaken_battery(real: Any) -> Any:
    """Draw half of the power from a battery."""
    return lambda self, now_s, draws: real(self, now_s, [(at_s, w / 2) for at_s, w in draws])


MUTATIONS = build_mutations(
    "clock: ",
    {
        "waiting is free": (
            {"energy balance", "joules by cause"},
            change_result(
                "otafl.clock.power:Power._compute_costs", lambda costs: (*costs[:2], 0.0)
            ),
        ),
        "a battery gives half": (
            "energy balance",
            replace_by("otafl.devices.battery:Battery.plan", _weaken_battery),
        ),
    },
)
