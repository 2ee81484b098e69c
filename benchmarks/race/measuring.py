"""What the runners share: each races one simulator through one work in a program of its own.

A runner is called with the name of a work, the rounds, and an .npz file with x_train [n, pixels]
and x_test in float32, y_train [n] and y_test in int64. It prints a line of JSON: ms_per_round, the
processor milliseconds of each round but the first few, and accuracy, on all test samples.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from works import WORKS, LocalData

WARM_UP = 3
"""First rounds, in which programs compile and allocate; they are not measured."""

Arrays = Mapping[str, np.ndarray]
Lap = Callable[[], None]


class Laps:
    """Notes the processor time, of all threads, whenever it is called: after each round."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self) -> None:
        if not self.times_s:
            gc.collect()
            gc.freeze()  # what exists by now is not walked through again, in any simulator
        self.times_s.append(time.process_time())

    def ms_per_round(self) -> list[float]:
        times_s = np.array(self.times_s[WARM_UP - 1 :])
        return [round(float(ms), 4) for ms in 1e3 * np.diff(times_s)]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("rounds", type=int, help=f"more than {WARM_UP}, which warm up")
    parser.add_argument("data", type=Path, help=".npz file of the samples")
    return parser


def main(race: Callable[[LocalData, int, Arrays, Lap], float]) -> None:
    """Run a simulator that needs no more than these arguments."""
    given = arguments().parse_args()
    report(race, WORKS[given.work], given.rounds, given.data)


def report(
    race: Callable[[LocalData, int, Arrays, Lap], float], work: LocalData, rounds: int, data: Path
) -> None:
    """Race and print what was measured.

    race : trains so many rounds, calls its last argument after each, and returns the accuracy.
    """
    laps = Laps()
    with np.load(data) as arrays:
        accuracy = race(work, rounds, dict(arrays), laps)
    print(json.dumps({"ms_per_round": laps.ms_per_round(), "accuracy": float(accuracy)}))


def assign_samples(work: LocalData, arrays: Arrays) -> np.ndarray:
    """Return the samples of each device, [devices, n // devices], equally many in random order."""
    n = len(arrays["y_train"])
    size = n // work.devices
    return np.random.default_rng(0).permutation(n)[: work.devices * size].reshape(-1, size)
