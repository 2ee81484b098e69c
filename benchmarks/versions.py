"""Rounds of two checkouts of otafl in turn, for a change that should make them faster.

    python benchmarks/versions.py ../former . logistic mlp softmax quickstart --bursts 25

Each checkout runs in a process of its own, on one thread. Bursts of a few rounds alternate. Prints
a row for each case: medians of the bursts, and the median of the pairs' ratios with their middle
half. Fashion-MNIST is read from $OTAFL_DATA_DIR.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DIGITS: dict[str, Any] = {
    "name": "versions",
    "data": "digits",
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "channel": "rayleigh",
    "devices": {"count": 10},
    "training": {"rounds": 100000, "local_steps": 5, "batch_size": 20},
    "engine": {"threads": 1, "device": "cpu"},
}
ONE_STEP = {**DIGITS["training"], "local_steps": 1}
SOFTMAX = {**DIGITS, "model": "softmax_regression", "training": ONE_STEP, "trials": 1000}
QUICKSTART = {**DIGITS, "model": {"name": "mlp", "hidden": [32]}}
IMAGES = {**DIGITS, "data": "fashion_mnist", "transport": "ideal"}

CASES: dict[str, tuple[dict[str, Any], int, int]] = {  # scenario, rounds to warm up, of a burst
    "logistic": (
        {
            **IMAGES,
            "model": {"name": "softmax_regression", "start": "uniform"},
            "devices": {"count": 1000, "participants": 10},
            "training": {"rounds": 100000, "local_steps": 6, "batch_size": 10},
        },
        700,
        40,
    ),
    "mlp": (
        {
            **IMAGES,
            "model": {"name": "mlp", "hidden": [100]},
            "devices": {"count": 100},
            "training": {"rounds": 100000, "local_steps": 20, "batch_size": 20},
        },
        8,
        3,
    ),
    "softmax": (SOFTMAX, 50, 6),
    "softmax_large_chunks": ({**SOFTMAX, "engine": {**DIGITS["engine"], "chunk_mb": 64}}, 50, 6),
    "quickstart": ({**QUICKSTART, "trials": 1}, 1500, 40),
    "quickstart_10_trials": ({**QUICKSTART, "trials": 10}, 500, 40),
    "quickstart_200_trials": ({**QUICKSTART, "trials": 200}, 40, 5),
}


def run_bursts(case: str) -> None:
    """Run a burst for each line of input, and print the median microseconds of a trial's round."""
    import torch

    from otafl.engine.assembly import assemble
    from otafl.engine.engine import Engine
    from otafl.scenario import expand, load_scenario

    torch.set_num_threads(1)
    scenario, warm_up, rounds = CASES[case]
    trials = scenario.get("trials", 1)
    engine = Engine(assemble(expand(load_scenario(scenario)), range(trials)))
    for t in range(warm_up):
        engine.run_round(t)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    t = warm_up
    for _ in sys.stdin:
        spent_s = []
        for _ in range(rounds):
            began_s = time.process_time()
            engine.run_round(t)
            spent_s.append(time.process_time() - began_s)
            t += 1
        print(1e6 * statistics.median(spent_s) / trials, flush=True)


def start(tree: Path, case: str) -> subprocess.Popen[str]:
    """Start the bursts of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--case", case]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(program: subprocess.Popen[str]) -> float:
    """Return the microseconds of the next burst."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def compare(trees: list[Path], case: str, bursts: int) -> None:
    """Print the row of a case."""
    programs = [start(tree, case) for tree in trees]
    for program in programs:
        assert program.stdout is not None
        program.stdout.readline()
    times = np.array([[ask(program) for program in programs] for _ in range(bursts)])
    for program in programs:
        program.kill()
    former, new = np.median(times, 0)
    low, middle, high = np.percentile(times[:, 0] / times[:, 1], (25, 50, 75))
    print(
        f"| {case} | {former:,.0f} | {new:,.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", type=Path, nargs="*", help="former and new checkout, and cases")
    parser.add_argument("--bursts", type=int, default=25)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        run_bursts(given.case)
        return
    trees, cases = given.trees[:2], [str(case) for case in given.trees[2:]] or list(CASES)
    print("| case | former, µs | new, µs | former / new |\n|---|---|---|---|")
    for case in cases:
        compare(trees, case, given.bursts)


if __name__ == "__main__":
    main()
