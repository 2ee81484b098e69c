"""Plain rounds with arrays against the same rounds with SimPy."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import scenario
from support.made_devices import make_battery_hardware as made
from support.rounding import assert_agree

from otafl.clock import plain_rounds
from otafl.clock.stack_clock import Clock
from otafl.devices.hardware import Hardware
from otafl.devices.protocols import Rules
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.scenario import expand

pytestmark = pytest.mark.exact

WATTS = {"circuit_w": 0.7, "receive_w": 0.4, "idle_w": 0.2, "sleep_w": 0.05}
RADIO = {"devices.compute": {"name": "fixed", **WATTS}}
SLOW = {"name": "drawn", "flops_per_s": {"uniform": [1e5, 1e6]}}
PLAIN: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"devices.participants": 2},
    "watts": RADIO,
    "watts of some": RADIO | {"devices.participants": 2},
    "senders": RADIO | {"devices.senders": 2},
    "classes": {"devices.compute": {"name": "classes", "classes": [1e9, 4e9, 8e9]}},
    "edge": {"devices.compute": "edge_gpu"},
    "stragglers": {"faults.straggler_probability": 0.3},
    "crashes": {"faults.crash_probability": 0.3},
    "a long deadline": {"devices.deadline_s": 1e4, "devices.late": "next"},
    "a budget": {"devices.round_budget_j": 1e-3},
    "digital": RADIO | {"transport": "digital"},
    "broadcast": {"downlink": "digital"},
    "servers": {"topology": {"name": "hierarchical", "servers": 3, "cloud_every": 2}},
    "a duration": {"training.duration_s": 0.02},
    "a target": {"training.stop_at": {"test_accuracy": 0.12}},
}
"""Changes of a small scenario whose rounds are plain."""
LEAVING: dict[str, dict[str, Any]] = {
    "a short deadline": {"devices.deadline_s": 0.02, "devices.compute": SLOW},
    "next": {"devices.deadline_s": 0.02, "devices.compute": SLOW, "devices.late": "next"},
    "reboots": {"faults.crash_probability": 0.3, "faults.crash_downtime_s": 1e-3},
}
"""Those whose rounds are plain until somebody is late, or crashes."""
NEVER: dict[str, dict[str, Any]] = {
    "asynchronous": {"devices.protocol": "asynchronous"},
    "batteries": {"devices.compute": {"name": "fixed", "battery_j": 5.0}},
    "markov": {
        "devices.availability": {"name": "markov", "mean_on_s": 1.0, "mean_off_s": 1.0},
    },
    "a timeline": {"output.save_timeline": True},
    "few devices": {"devices.count": 3},
}


def engine(changes: dict[str, Any]) -> Engine:
    return Engine(assemble(expand(scenario(changes)), range(3)))


def follow(one: Engine, rounds: int = 4) -> list[Any]:
    """What a checkpoint holds after each round, and what the clock says."""
    clock = one.parts.clock
    clock.journal = []
    recorder = Recorder(one, 1, 3)
    seen: list[Any] = []
    for t in itertools.takewhile(lambda _: one.running.any(), range(rounds)):
        one.run_round(t)
        recorder.take_record(t + 1, 0.0)
        told = (
            clock.get_available(),
            clock.are_all_available(),
            clock.get_busy(),
            clock.count_present(),
        )
        seen.append(
            copy.deepcopy([clock.journal, recorder.state_dict(), told, clock.count_updates()])
        )
    return seen


def assert_same(one: Any, other: Any, name: str = "") -> None:
    """Compare trees of plain data: types and values, real numbers up to rounding."""
    assert type(one) is type(other), name
    if isinstance(one, dict):
        assert list(one) == list(other), name
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other), name
        for own, law in zip(one, other, strict=True):
            assert_same(own, law, name)
    elif isinstance(one, torch.Tensor | np.ndarray | float):
        assert_agree(one, other, name)
    else:
        assert one == other, name


@pytest.mark.parametrize("name", PLAIN | LEAVING)
def test_a_run_is_that_with_simpy(name: str) -> None:
    changes = (PLAIN | LEAVING)[name]
    arrays, simpy = engine(changes), engine(changes)
    assert arrays.parts.clock.is_plain
    assert simpy.parts.clock.trials
    assert_same(follow(arrays), follow(simpy))
    assert arrays.parts.clock.is_plain == (name in PLAIN)
    replayed = engine(changes).parts.clock
    assert simpy.parts.clock.journal
    replayed.replay(simpy.parts.clock.journal)
    assert replayed.is_plain == (name in PLAIN)
    assert_same(replayed.get_time_s(), simpy.parts.clock.get_time_s())
    assert_same(replayed.compute_spent_j(), simpy.parts.clock.compute_spent_j())


@pytest.mark.parametrize("name", NEVER)
def test_what_is_not_plain_is_left_to_simpy(name: str) -> None:
    assert not engine(NEVER[name]).parts.clock.is_plain


class Twins:
    """The same rounds of random work, with arrays and with SimPy."""

    def __init__(self, seed: int, rules: Rules, together: int = 1) -> None:
        one = made(6, **WATTS)
        frugal = made(6)
        stack = Hardware.stack([one, frugal, one, one])
        self.arrays, self.simpy = (Clock(stack, [rules] * 4, [()] * 4) for _ in range(2))
        self.arrays.together = self.simpy.together = together
        assert self.simpy.trials
        self.draw = np.random.default_rng(seed)

    def both(self, method: str, *given: Any) -> Any:
        ours, law = (getattr(one, method)(*given) for one in (self.arrays, self.simpy))
        assert_same(ours, law, method)
        return ours

    def begin(self, round: int) -> None:
        """Begin a round: of some trials with nobody, of a stopped trial with somebody."""
        free = self.simpy.get_available() & (self.draw.random((4, 6)) < 0.5)
        who = [row.nonzero()[0] for row in free]
        rows = sum(map(len, who))
        down, seconds = self.draw.random((2, rows)) * (self.draw.random((2, rows)) < 0.9)
        given = round, who, down, seconds, self.draw.random(rows)
        self.both("begin", *given, None if round % 2 else 1.3 * self.draw.random(4) + 1.0)

    def look(self) -> None:
        for method in (
            *("get_time_s", "compute_spent_j", "get_available", "get_busy"),
            *("count_present", "count_updates"),
        ):
            self.both(method)

    def close(self) -> None:
        airtime = self.draw.random(4) * (self.draw.random(4) < 0.8)
        joules, on_air = self.draw.random((2, 4, 6))
        self.both("close_slot", airtime, joules, on_air if self.draw.random() < 0.5 else None)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("ask", ["between rounds", "after begin", "in the slot"])
def test_simpy_can_take_over_at_any_instant(ask: str, together: int) -> None:
    twins = Twins(3, Rules(), together)
    for round in range(9):
        if round == 4:
            twins.both("stop", 1)
        twins.both("wait_for_devices")
        twins.begin(round)
        if ask == "after begin" and round == 6:
            twins.look()
        twins.both("open_slot")
        if ask == "in the slot" and round == 6:
            twins.look()
        twins.close()
        twins.both("synchronise", together, [0.5, 0.0, 0.25, 0.125])
        twins.look()
        assert twins.arrays.is_plain == (ask == "between rounds" or round < 6)
    assert len(twins.arrays.trials) == 4
    twins.look()
    twins.begin(9)
    twins.both("open_slot")
    twins.close()
    twins.look()


def test_a_round_is_left_to_simpy_when_somebody_is_late() -> None:
    twins = Twins(1, Rules(deadline_s=2.2))
    plain = []
    for round in range(8):
        twins.begin(round)
        twins.both("open_slot")
        twins.close()
        twins.look()
        plain.append(twins.arrays.is_plain)
    assert plain[0]
    assert not plain[-1]


def test_errors_are_those_of_simpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rounds, "MIN_DEVICES", 0)
    clock = Clock(Hardware.stack([made(2)]), [Rules()], [()])
    with pytest.raises(ValueError, match="seconds must be finite"):
        clock.begin(0, [np.arange(2)], 0.0, np.array([1.0, np.nan]), np.ones(2))
    clock = Clock(Hardware.stack([made(2)]), [Rules()], [()])
    with pytest.raises(RuntimeError, match="admit before start"):
        clock.open_slot()
    clock.begin(0, [np.arange(2)], 0.0, np.ones(2), np.ones(2))
    clock.open_slot()
    with pytest.raises(ValueError, match="airtime_s must be finite"):
        clock.close_slot(-1.0)


def test_swapping_the_speeds_of_two_devices_changes_who_makes_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first round all are on time, in the second the slower device is not."""
    monkeypatch.setattr(plain_rounds, "MIN_DEVICES", 0)
    for slow, fast in ((0, 1), (1, 0)):
        clock = Clock(Hardware.stack([made(2)]), [Rules(deadline_s=2.0)], [()])
        seconds = np.ones(2)
        seconds[slow] = 1.5
        for scale, on_time in ((1.0, [0, 1]), (1.5, [fast])):
            assert clock.is_plain
            clock.begin(0, [np.arange(2)], 0.0, scale * seconds, np.ones(2))
            (slot,) = clock.open_slot()
            assert slot.on_time == on_time
            clock.close_slot(0.5)
