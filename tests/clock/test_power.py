"""Joules by cause and batteries that run empty: instants worked by hand, and conservation over
random lives.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.made_devices import make_battery_hardware

from otafl.clock.local_work import Interval, WorkSlot
from otafl.clock.trial_clock import TrialClock
from otafl.devices.hardware import CAUSES
from otafl.devices.protocols import Rules

pytestmark = pytest.mark.exact


def spent(clock: TrialClock) -> dict[str, list[float]]:
    return dict(zip(CAUSES, clock.compute_spent_j().T.tolist(), strict=True))


def test_joules_by_cause() -> None:
    """Receive 1 s at 2 W, compute 2 s at 3 W, wait until 5 s at 0.5 W, transmit 2 s with 1.5 W of
    circuits and 4 J radiated, sleep from 7 to 9 s at 0.25 W."""
    own = make_battery_hardware(2, receive_w=2.0, idle_w=0.5, circuit_w=1.5, sleep_w=0.25)
    clock = TrialClock(own)
    clock.start(0, [0, 1], [1.0, 1.0], [2.0, 4.0], [3.0, 0.0])
    assert clock.admit() == WorkSlot(5.0, [0, 1], [0, 0])
    clock.transmit(2.0, [4.0, 0.0])
    clock.start(1, [], [], [], [], 2.0)
    clock.admit()
    causes = {name: values[0] for name, values in spent(clock).items()}
    expected = {"compute": 6.0, "transmit": 4.0, "circuit": 3.0, "receive": 2.0, "idle": 1.5}
    assert causes == expected


def test_work_in_progress_has_cost_what_it_has_cost() -> None:
    clock = TrialClock(make_battery_hardware(2, receive_w=2.0), Rules(deadline_s=2.0, late="next"))
    clock.start(0, [0, 1], [1.0, 1.0], [0.5, 4.0], [3.0, 3.0])
    clock.admit()
    assert spent(clock)["compute"] == [1.5, 3.0]
    assert spent(clock)["receive"] == [2.0, 2.0]


def test_empty_while_computing() -> None:
    """5 J, 1 s of 1 W, then 2 W: empty at 3 s, half way; the slot goes on without it. 0.5 W of
    harvest come all the while, so at 1 + 4.5 / 1.5 = 4 s; back at 2 J, 4 s later."""
    own = make_battery_hardware(2, receive_w=1.0, battery_j=5.0, charge_j=5.0, restart_j=2.0)
    clock = TrialClock(own, log=True)
    clock.start(0, [0, 1], [1.0, 1.0], [4.0, 1.0], [2.0, 2.0])
    assert clock.admit() == WorkSlot(3.0, [1], [0])
    assert spent(clock)["compute"] == [4.0, 2.0]
    assert clock.lost == 1
    assert not clock.get_available()[0]
    own = replace(own, harvest_w=np.full(2, 0.5))
    clock = TrialClock(own, Rules(deadline_s=20.0), log=True)
    clock.start(0, [0, 1], [1.0, 1.0], [40.0, 1.0], [2.0, 2.0])
    clock.admit()
    assert Interval(0, 0, "lost", 0.0, 4.0) in clock.history()
    # the first 0.5 W fill nothing
    assert clock.power.compute_charge_j().tolist() == [0.0, 5.0 - 0.5 - 1.5 + 1.0]
    clock.transmit(6.0)
    assert Interval(0, -1, "empty", 4.0, 8.0) in clock.history()
    assert clock.get_available().all()


def test_nobody_comes_back_to_an_empty_battery() -> None:
    """However long it goes on leaving and coming back; time stands still at the end of the last
    transmission, whatever was planned for later."""
    own = make_battery_hardware(2, sleep_w=0.5, circuit_w=4.0, battery_j=10.0, charge_j=10.0)
    life = ((float(t), bool(t % 2 == 0)) for t in itertools.count(1))
    clock = TrialClock(own, lives=[life, None])
    clock.start(0, [0, 1], [0.0, 0.0], [0.5, 0.5], [0.0, 0.0])
    clock.admit()
    clock.transmit(4.0)
    assert clock.wait_for_devices() is False
    assert clock.get_time_s() == 4.5


def test_a_transmission_that_the_battery_cannot_finish() -> None:
    """4 J for 2 s of 1 W circuits and 6 J radiated: 4 W, so it ends after 1 s, half done."""
    own = make_battery_hardware(1, circuit_w=1.0, battery_j=4.0, charge_j=4.0)
    clock = TrialClock(own, log=True)
    clock.start(0, [0], [0.0], [1.0], [0.0])
    clock.admit()
    clock.transmit(2.0, [6.0])
    assert spent(clock)["transmit"] == [3.0]
    assert spent(clock)["circuit"] == [1.0]
    assert clock.power.compute_charge_j().tolist() == [0.0]
    assert Interval(0, 0, "transmit", 1.0, 2.0) in clock.history()
    assert Interval(0, -1, "empty", 2.0, 3.0) in clock.history()


def test_who_leaves_and_comes_back_while_it_transmits_pays_for_the_transmission() -> None:
    """From 1 to 5 s at 1 W, away from 2 to 3 s: 4 J all the same, and asleep at 0.5 W after."""
    own = make_battery_hardware(1, circuit_w=1.0, sleep_w=0.5, battery_j=8.0, charge_j=8.0)
    clock = TrialClock(own, lives=[iter([(2.0, False), (3.0, True)])])
    clock.start(0, [0], [0.0], [1.0], [0.0])
    clock.admit()
    clock.transmit(4.0)
    clock.start(1, [], [], [], [], 2.0)
    clock.admit()
    assert spent(clock) | {"idle": [1.0], "circuit": [4.0]} == spent(clock)
    assert clock.power.compute_charge_j().tolist() == [3.0]


@pytest.mark.parametrize("seed", range(4))
def test_energy_spent_is_energy_drawn(seed: int) -> None:
    """Over lives with leaving, running out and recharging: what a device has spent is
    what its battery gave, and every update is sent, lost or at work."""
    rng = np.random.default_rng(seed)
    devices = 8
    charge = rng.uniform(1.0, 6.0, devices)
    own = make_battery_hardware(
        devices,
        receive_w=rng.random(devices),
        idle_w=0.3 * rng.random(devices),
        sleep_w=0.1 * rng.random(devices),
        circuit_w=rng.random(devices),
        battery_j=6.0,
        charge_j=charge,
        restart_j=2.0,
        harvest_w=0.4 * rng.random(devices),
    )
    lives = []
    for _ in range(devices):
        at = np.cumsum(rng.exponential(8.0, 40)).tolist()
        lives.append(iter([(t, bool(place % 2)) for place, t in enumerate(at)]))
    rules = [
        Rules(deadline_s=2.0),
        Rules(deadline_s=2.0, late="next"),
        Rules(1, max_ready=1, late="next", broadcast_first=False),
        Rules(0, 1.5, late="next", broadcast_first=False),
    ]
    clock = TrialClock(own, rules[seed], lives, log=True)
    sent = 0
    for round in range(120):
        assert clock.wait_for_devices()
        who = clock.get_available().nonzero()[0].tolist()
        down = rng.random(len(who)).tolist()
        seconds = rng.exponential(1.0, len(who)).tolist()
        clock.start(round, who, down, seconds, rng.random(len(who)).tolist())
        slot = clock.admit()
        airtime_s = rng.random()
        on_air_s = airtime_s * rng.uniform(0.2, 1.0, devices)
        joules = rng.random(devices).tolist()
        clock.transmit(airtime_s, joules, on_air_s.tolist())
        sent += len(slot.on_time)
        left = clock.power.compute_charge_j()
        came = np.array([clock.power.batteries[k].harvested_j for k in range(devices)])
        gave = charge + came - left
        np.testing.assert_allclose(clock.compute_spent_j().sum(1), gave, rtol=1e-9, atol=1e-9)
    assert clock.started == sent + clock.lost + len(clock.get_busy())
    kinds = {one.activity for one in clock.history()}
    assert {"lost", "left", "empty", "transmit", "receive", "compute"} <= kinds
    assert clock.lost > 10
    assert sent > 20
    for device in range(devices):  # one thing at a time
        own_time = sorted(
            (one.start_s, one.end_s)
            for one in clock.history()
            if one.device == device and one.round >= 0
        )
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(own_time))
