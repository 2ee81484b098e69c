"""Plain rounds with arrays against the same rounds with SimPy."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from contract.small import scenario
from support.rounding import assert_agree

from otafl.clock import ArrayClock, EventClock
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.scenario import expand

pytestmark = pytest.mark.exact

WATTS = {"circuit_w": 0.7, "receive_w": 0.4, "idle_w": 0.2, "sleep_w": 0.05}
RADIO = {"devices.compute": {"name": "fixed", **WATTS}}
PLAIN: dict[str, dict[str, Any]] = {
    "watts of some": RADIO | {"devices.participants": 2},
    "classes": {"devices.compute": {"name": "classes", "classes": [1e9, 4e9, 8e9]}},
    "faults": {"faults.straggler_probability": 0.3, "faults.crash_probability": 0.3},
    "digital": RADIO | {"transport": "digital", "downlink": "digital"},
    "servers": {"topology": {"name": "hierarchical", "servers": 3, "cloud_every": 2}},
    "a duration": {"training.duration_s": 0.02},
}
"""Changes of a small scenario whose rounds are plain."""
TOLD = (
    *("get_time_s", "compute_spent_j", "get_available", "are_all_available", "get_busy"),
    *("count_present", "count_updates"),
)
OTHERS: list[dict[str, Any]] = [
    {"devices.deadline_s": 1e4},
    {"devices.protocol": "asynchronous"},
    {"devices.compute": {"name": "fixed", "battery_j": 5.0}},
    {"devices.availability": {"name": "markov", "mean_on_s": 1.0, "mean_off_s": 1.0}},
    {"output.save_timeline": True},
]


def engine(changes: dict[str, Any]) -> Engine:
    return Engine(assemble(expand(scenario(changes)), range(3)))


def follow(one: Engine, rounds: int = 4) -> list[Any]:
    """What the clock says after each round."""
    clock, recorder = one.parts.clock, Recorder(one, 1, 3)
    seen: list[Any] = []
    for t in itertools.takewhile(lambda _: one.running.any(), range(rounds)):
        one.run_round(t)
        recorder.take_record(t + 1, 0.0)
        seen.append([getattr(clock, method)() for method in TOLD])
    return seen


@pytest.mark.parametrize("name", PLAIN)
def test_a_run_is_that_with_simpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = engine(PLAIN[name])
    assert isinstance(arrays.parts.clock, ArrayClock)
    monkeypatch.setattr("otafl.clock.are_plain", lambda *given: False)
    simpy = engine(PLAIN[name])
    assert isinstance(simpy.parts.clock, EventClock)
    assert_agree(follow(arrays), follow(simpy))


def test_what_is_not_plain_is_left_to_simpy() -> None:
    kinds = [type(engine(changes).parts.clock) for changes in OTHERS]
    assert kinds == [EventClock] * len(OTHERS)
