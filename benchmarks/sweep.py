"""Speed and memory of a sweep: 6 SNRs x 4 power policies x 10 trials of FedRLR, stacked beside one
trial at a time, two workers beside one. Prints rows of a Markdown table for `benchmarks/run.py`.

    python benchmarks/sweep.py [workers]
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from otafl import load_scenario, open_results, sweeping
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.results.files import list_parts
from otafl.running.stack_run import run_stack
from otafl.scenario import Scenario, expand

SMALL = {"data": "digits", "model": {"name": "mlp", "hidden": [32]}}
PAPER = {"data": "fashion_mnist", "model": {"name": "mlp", "hidden": [256, 256]}}
SNRS_DB = [0, 5, 10, 15, 20, 25]
POLICIES = ["gbma", "ci", "tci", "full"]
FACTORISATIONS = ("svd", "qr", "cholesky", "cholesky_ex", "eigh", "solve_triangular")


def scenario(size: dict[str, Any], rounds: int, **engine: Any) -> Scenario:
    """FedRLR at rank 4, ten devices, batches of 6; evaluated at the end."""
    tree = {
        "name": "sweep",
        **size,
        "algorithm": {"name": "fedrlr", "rank": 4},
        "channel": {"name": "rayleigh", "snr_db": 25},
        "devices": {"count": 10},
        "training": {"rounds": rounds, "batch_size": 6, "eval_every": rounds, "eval_samples": 500},
        "trials": 10,
        "engine": {"device": "cpu", "threads": 1, **engine},
        "sweep": {"channel.snr_db": SNRS_DB, "power.name": POLICIES},
    }
    return load_scenario(tree)


def stacked_or_alone(title: str, size: dict[str, Any], rounds: int, alone: int) -> None:
    """The whole sweep beside `alone` of its 240 trials one by one, spread over the points, each
    with what it takes to begin."""
    one = scenario(size, rounds)
    points = expand(one)
    every = [(point, trial) for trial in range(one.trials) for point in points]
    some = every[:: len(every) // alone][:alone]
    run_stack(*([points[0]], None, [0]))
    ratios = []
    for turn in range(3):
        now = some[turn % 2 :: 2]
        single = sum(seconds(partial(run_stack, [p], None, [t])) for p, t in now)
        stacked = seconds(partial(sweeping.run, one))
        ratios.append(single / len(now) * len(every) / stacked)
    row(title, "one by one / stacked", spread(ratios))


def factorisations(title: str, size: dict[str, Any]) -> None:
    """How much of the rounds of a stack is in LAPACK's small factorisations."""
    one = scenario(size, 1000)
    points = [p for p in expand(one) if p.coords["power"] == "gbma"]
    engine = Engine(assemble(points, range(one.trials)))
    spent = [0.0]
    for name in FACTORISATIONS:
        setattr(torch.linalg, name, time_calls(getattr(torch.linalg, name), spent))
    for t in range(3):
        engine.run_round(t)
    spent[0] = 0.0
    whole = seconds(lambda: [engine.run_round(t) for t in range(3, 23)])
    row(title, "a round / its small factorisations", f"{whole / spent[0]:.1f}")


def time_calls(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - began

    return call


def workers(title: str, size: dict[str, Any], rounds: int) -> None:
    """A sweep by one worker of one thread and by two, from start to end."""
    one = scenario(size, rounds)
    ratios, alone = [], []
    for _ in range(5):
        times = {}
        for count in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                times[count] = seconds(partial(sweeping.sweep, one, Path(folder), None, count))
        ratios.append(times[1] / times[2])
        alone.append(times[1])
    row(title, "one worker", f"{statistics.median(alone):.0f} s")
    row(title, "one worker / two, one thread each", spread(ratios, 2))


def memory(title: str, size: dict[str, Any], bound_gb: float) -> None:
    """The growth of a program's memory while it runs a sweep, over its bound."""
    code = f"import sweep; sweep.grow({size!r}, {bound_gb})"
    place = Path(__file__).parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place)
    row(title, f"memory taken / engine.memory_gb of {bound_gb}", done.stdout.strip())


def grow(size: dict[str, Any], bound_gb: float) -> None:
    """Prints it; in a program of its own, whose memory nobody else has grown."""
    small = scenario(size, 1).model_copy(update={"trials": 1, "sweep": {}})
    sweeping.run(small)  # with the data and the libraries
    me, ended = psutil.Process(), threading.Event()
    before = most = me.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.005):
            most = max(most, me.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    sweeping.run(scenario(size, 3, memory_gb=bound_gb))
    ended.set()
    watcher.join()
    print(f"{(most - before) / 2**30 / bound_gb:.2f}")


def opening(title: str) -> None:
    """The folder of a sweep of 10,000 points, stopped after nine tenths and finished."""
    tree = {
        "name": "opening",
        "data": {"name": "digits", "train_samples": 300},
        "model": {"name": "mlp", "hidden": [4]},
        "devices": {"count": 4},
        "training": {"rounds": 1, "batch_size": 4, "eval_samples": 40},
        "engine": {"device": "cpu", "threads": 1, "memory_gb": 0.002},
        "sweep": {"seed": list(range(100)), "channel.snr_db": list(range(100))},
    }
    one = load_scenario(tree)

    def stop(done: int, total: int, note: str) -> None:
        if done >= 0.9 * total:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with contextlib.suppress(KeyboardInterrupt):
            sweeping.sweep(one, home, stop)
        files = len(list(home.rglob("*.nc")))
        opened = seconds(partial(open_results, home))
        row(title, f"open_results, unfinished, {files} files", f"{opened:.1f} s")
        stacks = len(list_parts(home))
        sweeping.sweep(one, home)
        files = len(list(home.rglob("*.nc")))
        opened = seconds(partial(open_results, home))
        row(title, f"open_results, {files} files of {stacks} stacks", f"{opened:.1f} s")


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def spread(ratios: list[float], places: int = 1) -> str:
    shown = [f"{x:.{places}f}" for x in (statistics.median(ratios), min(ratios), max(ratios))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def row(title: str, what: str, value: str) -> None:
    print(f"| {title} | {what} | {value} |", flush=True)


def rows() -> None:
    """All of it, on one thread a program."""
    threads = torch.get_num_threads()
    grid = "6 SNRs x 4 policies x 10 trials, FedRLR"
    small, paper = f"{grid}, 64-32-10", f"{grid}, 784-256-256-10"
    stacked_or_alone(small, SMALL, 100, 48)
    factorisations(small, SMALL)
    stacked_or_alone(paper, PAPER, 100, 16)
    factorisations(paper, PAPER)
    workers(small, SMALL, 500)
    memory(paper, PAPER, 0.5)
    opening("10,000 points")
    torch.set_num_threads(threads)


if __name__ == "__main__":
    if sys.argv[1:] == ["workers"]:
        for rounds in (200, 500):
            workers(f"FedRLR, 64-32-10, {rounds} rounds", SMALL, rounds)
    else:
        rows()
