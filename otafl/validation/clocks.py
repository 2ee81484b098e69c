"""Law of the simulated clock: waiting follows queueing theory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otafl.clock.trial_clock import TrialClock
from otafl.devices.compute.kinds import Fixed
from otafl.devices.protocols import Rules
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, check_mean, state_law

SERVICE_S = 1.0
LOADS = ("load {:g}", (0.3, 0.6))
BATCHES = 40
"""Long batches of a correlated series, whose means are nearly independent."""

ONE_BY_ONE = Rules(1, max_ready=1, late="next", broadcast_first=False)


def _measure_waits(devices: int, mean_s: float, slots: int) -> np.ndarray:
    """Return the seconds from ready to its slot of every update.

    Devices compute for exponential times, and start again after each transmission.
    """
    draw = np.random.default_rng(5)
    hardware = Fixed().build_hardware(devices, draw)
    trial, free = TrialClock(hardware, ONE_BY_ONE, log=True), list(range(devices))
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
    sent = [(one.device, one.round) for one in history if one.activity == "transmit"]
    return np.array([waits.get(one, 0.0) for one in sent])


@state_law("clock: wait of a busy uplink", "Pollaczek and Khinchine; M/D/1 queue", *LOADS)
def _busy_uplink(bench: Bench, load: float) -> Iterator[Check]:
    """Compare mean and mean square of the wait for slots that take one device each.

    Devices that compute for long make arrivals nearly Poisson. The mean is W = load D / (2 (1 -
    load)). First come, first served, the mean square is 2 W^2 + load D^2 / (3 (1 - load)).
    """
    devices, slots = 2000, bench.scale_size(20_000)
    waits = _measure_waits(devices, devices * SERVICE_S / load, slots)[slots // 10 :]
    batches = waits[: len(waits) // BATCHES * BATCHES].reshape(BATCHES, -1)
    mean = load * SERVICE_S / (2.0 * (1.0 - load))
    square = 2.0 * mean**2 + load * SERVICE_S**2 / (3.0 * (1.0 - load))
    yield check_mean(mean, batches.mean(1), "mean")
    yield check_mean(square, (batches**2).mean(1), "mean square")
