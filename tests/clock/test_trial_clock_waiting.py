"""How long ready devices wait for a slot, against queueing theory. Seeds are fixed; each test
states its sample size and how its bound was set.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.made_devices import make_mains_hardware

from otafl.clock.trial_clock import TrialClock
from otafl.devices.protocols import Rules

pytestmark = pytest.mark.law


SERVICE = 1.0
LEVEL = 1e-4


def waits(rules: Rules, devices: int, mean_s: float, slots: int, seed: int) -> np.ndarray:
    """Seconds from ready to the slot of every update, of devices that compute for exponential
    times and start anew after each transmission."""
    rng = np.random.default_rng(seed)
    clock = TrialClock(make_mains_hardware(devices), rules, log=True)
    free = list(range(devices))
    for round in range(slots):
        rows = len(free)
        clock.start(round, free, [0.0] * rows, rng.exponential(mean_s, rows).tolist(), [0.0] * rows)
        free = clock.admit().on_time
        clock.transmit(SERVICE if free else 0.0)
    sent = [one for one in clock.history() if one.activity in ("wait", "transmit")]
    waited = {
        (one.device, one.round): one.end_s - one.start_s
        for one in sent[::1]
        if one.activity == "wait"
    }
    return np.array(
        [waited.get((one.device, one.round), 0.0) for one in sent if one.activity == "transmit"]
    )


def batch_z(values: np.ndarray, expected: float, batches: int = 40) -> float:
    """Deviation of a correlated series' mean in its own standard errors, from batch means."""
    means = values[: len(values) // batches * batches].reshape(batches, -1).mean(1)
    return float((means.mean() - expected) / (means.std(ddof=1) / batches**0.5))


@pytest.mark.parametrize("load", [0.3, pytest.param(0.6, marks=pytest.mark.slow), 0.8])
def test_asynchronous_uplink_is_an_m_d_1_queue(load: float) -> None:
    """Pollaczek and Khinchine: with Poisson arrivals at a rate of load / D and slots of D seconds,
    a mean wait of load D / (2 (1 - load)) and, first come first served, a second moment of
    2 W^2 + load D^2 / (3 (1 - load)). 2,000 devices that compute for long make arrivals Poisson but
    for those (under 0.5 %) that wait; 20,000 slots, the first tenth left out; batch means, Student
    with 39 degrees of freedom at 1e-4 on 1 % more or less."""
    rules = Rules(1, max_ready=1, late="next", broadcast_first=False)
    waited = waits(rules, 2000, 2000 * SERVICE / load, 20_000, 5)[2000:]
    mean = load * SERVICE / (2 * (1 - load))
    second = 2 * mean**2 + load * SERVICE**2 / (3 * (1 - load))
    bound = stats.t.isf(LEVEL / 2, 39)
    assert abs(batch_z(waited, mean)) < bound
    assert abs(batch_z(waited**2, second)) < bound


def test_asynchronous_cell_of_few_devices() -> None:
    """Machine repair with one repairman and constant repair: two devices, mean computing time a,
    service D. One waits only for the rest of the other's slot: after its own slot ends, the other
    is either served next or computing. By the two-state chain, with q = exp(-D / a) the chance that
    the other, at work when a slot begins, is not ready by its end, a slot is followed by a waiting
    device with probability 1 - q; such a device has waited D - t for t exponential given t < D."""
    rules = Rules(1, max_ready=1, late="next", broadcast_first=False)
    mean_s = 1.5
    waited = waits(rules, 2, mean_s, 40_000, 6)[1000:]
    q = np.exp(-SERVICE / mean_s)
    expected = SERVICE - mean_s * (1 - q)  # E[(D - t)^+] of an exponential t of mean a
    assert abs(batch_z(waited, expected)) < stats.t.isf(LEVEL / 2, 39)


def test_periodic_slots_wait_half_a_period() -> None:
    """Ready at instants that know nothing of the slots: the wait is uniform over the period, KS on
    4,000 updates of as many devices (computing for 300 periods on average) at 1e-3."""
    rules = Rules(0, 2.0, late="next", broadcast_first=False)
    waited = waits(rules, 4000, 600.0, 200, 7)
    assert len(waited) > 1000
    assert stats.kstest(waited / 2.0, "uniform").pvalue > 1e-3
