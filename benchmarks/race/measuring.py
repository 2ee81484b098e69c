"""What the runners share: each races one simulator through one work in a program of its own.

A runner is called with the name of a work, the rounds, and an .npz file with x_train [n, pixels]
and x_test in float32, y_train [n] and y_test in int64. It prints a line of JSON: ms_per_round and
wall_ms_per_round, the milliseconds of processors and of the clock on the wall of each round but the
first few, and accuracy, on all test samples.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from works import WORKS, LocalData

Arrays = Mapping[str, np.ndarray]
Lap = Callable[[], None]


class Laps:
    """Notes the time whenever it is called, before the first round and after each: of processors,
    and on the wall.

    processor_s : reads the processor seconds so far.
    """

    def __init__(self, processor_s: Callable[[], float]) -> None:
        self.times_s: list[tuple[float, float]] = []
        self.processor_s = processor_s

    def __call__(self) -> None:
        if not self.times_s:
            gc.collect()
            gc.freeze()  # what exists by now is not walked through again, in any simulator
        self.times_s.append((self.processor_s(), time.perf_counter()))

    def ms_per_round(self, warm_up: int) -> tuple[list[float], list[float]]:
        """Return the milliseconds of each round: of processors, and on the wall."""
        times_s = np.array(self.times_s[warm_up:])
        processor, wall = np.diff(1e3 * times_s, axis=0).round(4).T.tolist()
        return processor, wall


def measure_all_processes() -> float:
    """Return the processor seconds of this program and of all that it started."""
    ended = os.times()
    total_s = time.process_time() + ended.children_user + ended.children_system
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            total_s += sum(one.cpu_times()[:4])
    return total_s


def count_cores() -> int:
    """Count the processor cores that the race gives to each simulator."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("rounds", type=int, help="more than those that warm up")
    parser.add_argument("data", type=Path, help=".npz file of the samples")
    return parser


def main(
    race: Callable[[LocalData, int, Arrays, Lap], float],
    processor_s: Callable[[], float] = time.process_time,
) -> None:
    """Race and print what was measured.

    race : trains so many rounds, calls its last argument before them and after each, and returns
        the accuracy.
    processor_s : reads the processor seconds so far, by default of all threads of this process.
    """
    given = arguments().parse_args()
    work, laps = WORKS[given.work], Laps(processor_s)
    with np.load(given.data) as arrays:
        accuracy = race(work, given.rounds, dict(arrays), laps)
    processor, wall = laps.ms_per_round(work.warm_up)
    print(json.dumps({"ms_per_round": processor, "wall_ms_per_round": wall, "accuracy": accuracy}))


def assign_samples(work: LocalData, arrays: Arrays) -> np.ndarray:
    """Return the samples of each device, [devices, n // devices], equally many in random order."""
    n = len(arrays["y_train"])
    size = n // work.devices
    return np.random.default_rng(0).permutation(n)[: work.devices * size].reshape(-1, size)
