"""Race otafl beside public simulators, on one processor core. Prints a Markdown page.

    sh benchmarks/race/setup.sh                                  installs the others, once
    python benchmarks/race/race.py > benchmarks/race.md

All train by plain FedAvg over a link without errors (works.py). Simulators run in turn, each in a
program of its own, as often as there are repetitions; times are of a round, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from ours import scenario_of
from works import RACED, WORKS, LocalData

import otafl
from otafl import data, models
from otafl.results.origins import get_device_name
from otafl.scenario import load_scenario

HERE = Path(__file__).parent
PLAIN = "plain loop"
PEERS = {"FedJAX": "fedjax", "pfl-research": "pfl", "BlazeFL": "blazefl", "Flower": "flower"}
"""Names of the others, and of their environments."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TQDM_DISABLE": "1",
}
INTRODUCTION = """# Beside other simulators

Made by `python benchmarks/race/race.py > benchmarks/race.md`: plain FedAvg over a link without
errors, on Fashion-MNIST unless stated. Simulators run in turn, each in a program of its own. Times
are medians of the repetitions, with their range; a speed is the median of the ratios of the plain
loop's processor time to it. A wall time also has what a simulator waits for. The yardstick is the
time of forward and backward products at a thread's rate for a product of 1024 x 1024 matrices; it
is a reference, not a bound.
"""
GEMM = 1024
"""Side of the square matrices whose product shows what a thread can do."""


class Racer(NamedTuple):
    """A simulator: its script and its interpreter."""

    script: str
    python: Path = Path(sys.executable)


class Run(NamedTuple):
    """One repetition: the median round in milliseconds of processors and on the wall, accuracy."""

    ms: float
    wall_ms: float
    accuracy: float


def main() -> None:
    given = arguments()
    if hasattr(os, "sched_setaffinity"):  # of all programs that follow, too
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-given.cores :])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for line in page(given, Path(folder)):
            print(line, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Race otafl beside public simulators.")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=RACED)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1, help="of the processor, for each simulator")
    parser.add_argument("--rounds", type=int, help="of a repetition, in place of the works' own")
    parser.add_argument(
        "--environments", type=Path, default=HERE / ".venvs", help="folder that setup.sh filled"
    )
    given = parser.parse_args()
    if given.repetitions < 1:
        parser.error(f"--repetitions: got {given.repetitions}; must be 1 or more")
    warm_up = max(WORKS[name].warm_up for name in given.works)
    if given.rounds is not None and given.rounds <= warm_up:
        parser.error(f"--rounds: got {given.rounds}; must be more than {warm_up}, which warm up")
    return given


def page(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Race, and yield the lines of the page as they become known."""
    yield INTRODUCTION
    yield f"torch {torch.__version__}, {get_device_name('cpu')}, otafl {otafl.__version__},"
    yield f"cores: {given.cores}, repetitions: {given.repetitions}\n"
    racers, missing = find_racers(given.environments)
    yield from missing
    for name in given.works:
        yield from race(name, given, racers, folder)


def find_racers(environments: Path) -> tuple[dict[str, Racer], list[str]]:
    """Return the simulators that are installed, and a line for each that is not."""
    racers = {PLAIN: Racer("plain.py"), "otafl": Racer("ours.py")}
    missing = []
    for name, folder in PEERS.items():
        python = environments / folder / "bin" / "python"
        if python.exists():
            racers[name] = Racer(f"{folder}_runner.py", python)
        else:
            missing.append(f"{name} is left out: no {python}; `sh {HERE / 'setup.sh'}` makes it.\n")
    return racers, missing


def race(
    name: str, given: argparse.Namespace, racers: Mapping[str, Racer], folder: Path
) -> Iterator[str]:
    """Race one work, and yield its part of the page."""
    work = WORKS[name]
    rounds = work.rounds if given.rounds is None else given.rounds
    samples = export_samples(work, folder)
    runs: dict[str, list[Run]] = {one: [] for one in racers}
    flops_per_s = 0.0
    for _ in range(given.repetitions):
        flops_per_s = max(flops_per_s, gemm())
        for one, racer in racers.items():
            runs[one].append(run(racer, name, rounds, samples))
            print(name, one, runs[one][-1], file=sys.stderr, flush=True)  # it takes a while
    yardstick_ms = 1e3 * flops(work) / flops_per_s
    yield f"## {work.title}\n"
    taking_part = f"{work.participants} of {work.devices}"
    if work.participants == work.devices:
        taking_part = f"All {work.devices}"
    yield f"{taking_part} devices train in a round, by {work.steps} steps of {work.batch} samples."
    yield f"Accuracies are of round {rounds}. The yardstick is {number(yardstick_ms)} ms,"
    yield f"at {flops_per_s / 1e9:.0f} GFLOP/s.\n"
    yield from table(runs, yardstick_ms)
    yield ""


def table(runs: Mapping[str, Sequence[Run]], yardstick_ms: float) -> Iterator[str]:
    """Yield the rows of a work's table.

    runs : of each simulator, the plain loop's among them, in the order of the repetitions.
    """
    yield (
        "| simulator | CPU ms a round | range | wall ms | speed, plain loop = 1 | range "
        "| yardstick over time | accuracy |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name, own in runs.items():
        times, walls = ([getattr(one, key) for one in own] for key in ("ms", "wall_ms"))
        ratios = [plain.ms / one.ms for plain, one in zip(runs[PLAIN], own, strict=True)]
        middle = statistics.median(times)
        cells = [
            name,
            number(middle),
            f"{number(min(times))} to {number(max(times))}",
            number(statistics.median(walls)),
            f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{yardstick_ms / middle:.0%}",
            f"{statistics.mean(one.accuracy for one in own):.1%}",
        ]
        yield f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def export_samples(work: LocalData, folder: Path) -> Path:
    """Write the samples of a work for programs that have no otafl; return the file."""
    path = folder / f"{work.data.partition(':')[0]}.npz"
    if not path.exists():
        read = data.load_cached(load_scenario(scenario_of(work, 1)).data)
        flat = {f"x_{part}": getattr(read, f"x_{part}") for part in ("train", "test")}
        np.savez(
            path,
            y_train=read.y_train,
            y_test=read.y_test,
            **{key: x.reshape(len(x), -1) for key, x in flat.items()},
        )
    return path


def run(racer: Racer, name: str, rounds: int, samples: Path) -> Run:
    """Run a simulator in a program of its own. Raises CalledProcessError if it fails."""
    command = [racer.python, HERE / racer.script, name, str(rounds), samples]
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    times = (statistics.median(measured[key]) for key in ("ms_per_round", "wall_ms_per_round"))
    return Run(*times, measured["accuracy"])


def flops(work: LocalData) -> float:
    """Return the operations of a round's forward and backward passes."""
    scenario = load_scenario(scenario_of(work, 1))
    read = data.load_cached(scenario.data)
    model = models.build(scenario.model, read.input_shape, read.classes)
    return float(model.count_training_flops(work.samples))


def gemm() -> float:
    """Return the operations a second of a large matrix product on one thread, the best of ten."""
    a, b = torch.rand(GEMM, GEMM), torch.rand(GEMM, GEMM)
    torch.mm(a, b)
    least = float("inf")
    for _ in range(10):
        began = time.process_time()
        torch.mm(a, b)
        least = min(least, time.process_time() - began)
    return 2 * GEMM**3 / least


if __name__ == "__main__":
    main()
