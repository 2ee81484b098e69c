"""Compiled Adam steps of TDPFed, and stacks of workers, beside what they replaced.

    OMP_NUM_THREADS=1 python benchmarks/compiled_steps.py > results/benchmarks_compiled_steps.md

Prints a Markdown page.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator

import torch
from page import duration, header, row
from rounds import PAIRS, QUICKSTART, spread, use_kernel
from timing import side_by_side

import otafl
from otafl.algorithms import adam
from otafl.algorithms.adam import PenaltyAdam
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario


def compare_adam() -> None:
    """Print the time of TDPFed's Adam steps by tensor operations over that of compiled ones."""
    numbers = 4, 39_506
    optimiser = PenaltyAdam(torch.randn(numbers), torch.full((4,), 8e-4), torch.full((4,), 12.0))
    blocks = [block.contiguous() for block in torch.randn(numbers).split([34_496, 5_010], 1)]

    def step_often(spent_s: float) -> None:
        adam._kernel.spent_s = spent_s
        for _ in range(50):
            optimiser.step_(*blocks)

    ways = (functools.partial(step_often, spent_s) for spent_s in (float("inf"), float("-inf")))
    pair = side_by_side(*ways, PAIRS, time.process_time)
    row("Adam steps of 4 x 39,506", "compiled", duration(pair.fast_s / 50))
    row("Adam steps of 4 x 39,506", "tensor operations / compiled", spread(pair))


def compare_stacks() -> None:
    """Print what two workers gain in the rounds of a sweep of 8 points, by their stacks."""
    scenario = {**QUICKSTART, "sweep": {"channel.snr_db": list(range(8))}}
    points = expand(load_scenario(scenario))
    whole, *runs = (
        functools.partial(run_often, Engine(assemble(points[:n], range(1))), itertools.count())
        for n in (8, 4, 2)
    )
    for num_points, run in zip((4, 2), runs, strict=True):
        pair = side_by_side(run, whole, PAIRS, time.process_time)
        stacks = 4 // num_points
        gain = [value / stacks for value in (pair.ratio, pair.lowest, pair.highest)]
        title = f"8 points of the quickstart, two workers, stacks for each: {stacks}"
        row(title, "one program / each worker", "{:.2f} ({:.2f} to {:.2f})".format(*gain))


def run_often(engine: Engine, numbers: Iterator[int]) -> None:
    """Run three further rounds."""
    for t in itertools.islice(numbers, 3):
        engine.run_round(t)


def main() -> None:
    """Print the page."""
    torch.set_num_threads(1)
    command = "python benchmarks/compiled_steps.py > results/benchmarks_compiled_steps.md"
    print("# Compiled steps and stacks of workers\n")
    print(f"Made by `OMP_NUM_THREADS=1 {command}`.")
    print(
        "Things to compare run in turn, A B A B, on a busy machine. Times are processor seconds of"
    )
    print("one thread, and ratios medians of 11 pairs with their range. The gain of two workers")
    print("counts rounds only: a stack's time in one program over the rounds of one worker.\n")
    print(f"torch {torch.__version__}, otafl {otafl.__version__}\n")
    header("case", "figure", "measured")
    use_kernel(compiled=True)
    compare_adam()
    compare_stacks()


if __name__ == "__main__":
    main()
