"""Speed and memory, ours beside what a user would write. Prints a Markdown page.

    python benchmarks/run.py > benchmarks/run.md

Fashion-MNIST is used where it is found ($OTAFL_DATA_DIR), else digits scaled up to its size.
"""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import name_machine
from plain_loop import PlainFedAvg, mlp
from timing import Pair, seconds, side_by_side
from torch import Tensor

import otafl
from otafl.engine.assembly import EngineParts, assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

ROOT = Path(__file__).parent.parent
FEDRLR = {
    "name": "fedrlr_paper_size",
    "data": {"name": "fashion_mnist", "test": "train_tail"},
    "model": {"name": "mlp", "hidden": [256, 256]},
    "algorithm": {"name": "fedrlr", "rank": 4},
    "channel": {"name": "rayleigh", "snr_db": 25},
    "power": "gbma",
    "devices": {"count": 10},
    "training": {"rounds": 100000, "batch_size": 6},
}
FEDAVG = {
    "name": "fedavg_100",
    "data": "fashion_mnist",
    "model": {"name": "mlp", "hidden": [100]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.1},
    "channel": {"name": "rayleigh", "snr_db": 20},
    "power": "gbma",
    "devices": {"count": 100},
    "training": {"rounds": 100000, "local_steps": 20, "batch_size": 20},
}


NOTE = """
The sweep's rows are on one thread a program. "One by one" is a run of its own for each trial of
each point, of 100 rounds, with what it takes to begin. At the paper's size a round keeps a core
busy, so stacking gains less."""


class Rounds:
    """Calls run so many further rounds of a fresh engine."""

    def __init__(self, scenario: dict, trials: int, rounds: int) -> None:
        points = expand(load_scenario({**scenario, "trials": trials, "sweep": {}}))
        self.engine = Engine(assemble(points, range(trials)))
        self.rounds, self.next = rounds, 0
        gc.collect()
        gc.freeze()

    def __call__(self) -> None:
        for t in range(self.next, self.next + self.rounds):
            self.engine.run_round(t)
        self.next += self.rounds


def stacking(title: str, scenario: dict, rounds: int) -> None:
    """One trial beside ten stacked ones."""
    one, ten = Rounds(scenario, 1, rounds), Rounds(scenario, 10, rounds)
    pair = side_by_side(one, ten)
    single, stacked = rounds / pair.fast_s, 10 * rounds / pair.slow_s
    gain = [10 / r for r in (pair.ratio, pair.highest, pair.lowest)]
    row(title, "one trial", f"{single:.0f} rounds/s")
    row(title, "ten stacked", f"{stacked:.0f} trial-rounds/s")
    row(title, "stacked / alone", f"{gain[0]:.1f} ({gain[1]:.1f} to {gain[2]:.1f})")


def fedavg() -> None:
    """A round of 100 devices beside the plain loop."""
    ours = Rounds(FEDAVG, 1, 1)
    data = ours.engine.parts.samples.data
    index = torch.arange(len(data.y_train)).view(100, -1)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    plain = PlainFedAvg(mlp(x.shape[1], 100), x, y, index, 20, 20, 0.1)
    pair = side_by_side(ours, plain.round, pairs=5)
    title = "FedAvg, 784-100-10, 100 devices, 20 steps of 20"
    row(title, "otafl, a round", f"{pair.fast_s * 1e3:.0f} ms")
    row(title, "plain nn.Module loop", f"{pair.slow_s * 1e3:.0f} ms")
    ratio(title, "plain / otafl", pair)


def threads() -> None:
    """The same round on one thread, and on all."""
    most = torch.get_num_threads()
    torch.set_num_threads(1)
    one = Rounds(FEDAVG, 1, 1)
    torch.set_num_threads(most)
    all_ = Rounds(FEDAVG, 1, 1)

    def single() -> None:
        torch.set_num_threads(1)
        one()
        torch.set_num_threads(most)

    pair = side_by_side(all_, single)
    ratio("FedAvg, 784-100-10, 100 devices, 20 steps of 20", f"one thread / {most}", pair, 2)


def batched_or_vmap() -> None:
    """The written-out batched gradient step beside torch.func.vmap of grad, 10 devices a chunk."""
    n, batch, sizes = 10, 20, [(784, 100), (100,), (100, 10), (10,)]
    parts = Rounds(FEDAVG, 1, 1).engine.parts
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(n, *s, generator=generator) * 0.05 for s in sizes]
    x = torch.rand(n, batch, 784, generator=generator)
    y = torch.randint(10, (n, batch), generator=generator)

    def loss(p: list[Tensor], a: Tensor, b: Tensor) -> Tensor:
        hidden = torch.relu(a @ p[0] + p[1])
        return torch.nn.functional.cross_entropy(hidden @ p[2] + p[3], b)

    gradient = torch.func.vmap(torch.func.grad(loss))

    def step_with_vmap() -> None:
        for _ in range(20):
            for p, g in zip(params, gradient(params, x, y), strict=True):
                p.sub_(g, alpha=1e-6)

    named = dict(zip(parts.model.shapes, params, strict=True))
    own = replace(next_batch(parts), x=x, y=y, weight=None)

    @torch.no_grad()
    def step_written_out() -> None:
        for _ in range(20):
            parts.model.take_sgd_step_(named, own, torch.full((n,), 1e-6))

    pair = side_by_side(step_written_out, step_with_vmap)
    ratio("SGD step, 10 devices, 784-100-10", "vmap / written out", pair)


def next_batch(parts: EngineParts):  # type: ignore[no-untyped-def]
    """Any batch of the scenario's."""
    engine = Engine(parts)
    return parts.samples.training_data.select_cohort(0, engine.select_cohort(None, 0)).draw_batch(0)


def evaluation() -> None:
    """Evaluation beside the training between two evaluations, at the quickstart's size."""
    from otafl.evaluation.recorder import Recorder

    loaded = load_scenario(ROOT / "scenarios" / "quickstart.yaml")
    points = [p for p in expand(loaded) if p.coords["power"] == "gbma"]
    engine = Engine(assemble(points, range(loaded.trials)))
    recorder = Recorder(engine, len(points), loaded.trials)
    clock = {"round": 0}

    def train() -> None:
        for _ in range(loaded.training.eval_every):
            engine.run_round(clock["round"])
            clock["round"] += 1

    pair = side_by_side(lambda: recorder.take_record(clock["round"], 0.0), train)
    ratio("quickstart, 12 trials stacked", "training / evaluation", pair)


def uplink() -> None:
    """over_the_air of 100 devices x 1e6 parameters beside weights @ x, and its peak memory."""
    updates = np.random.default_rng(0).standard_normal((100, 1_000_000), dtype=np.float32)
    tensor = torch.from_numpy(updates)
    weights, vector = np.full(100, 0.01, dtype=np.float32), torch.full((100,), 0.01)
    title = "over_the_air, 100 devices x 1e6, Rayleigh, GBMA"
    for kind, plain, x in (
        ("NumPy", lambda: weights @ updates, updates),
        ("torch", lambda: vector @ tensor, tensor),
    ):
        pair = side_by_side(plain, functools.partial(otafl.over_the_air, x, snr_db=20.0))
        ratio(title, f"over_the_air / (weights @ x) in {kind}", pair)
    code = (
        "import resource, numpy as np, otafl\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "otafl.over_the_air(np.ones((2, 10), dtype=np.float32), snr_db=20.0)\n"
        "x = np.ones((100, 1_000_000), dtype=np.float32); a = peak()\n"
        "otafl.over_the_air(x, snr_db=20.0); print(1 + (peak() - a) / x.nbytes)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    row(title, "peak memory / input", f"{float(done.stdout):.2f}")


def bookkeeping(name: str, scenario: dict, trials: int, rounds: int) -> None:
    """Share of a round that is not tensor arithmetic, at 100 devices, with stacked trials."""
    engine = Rounds({**scenario, "devices": {"count": 100}}, trials, 1).engine
    host: list[float] = []
    for method in ("find_available", "select_cohort", "start_clock", "admit", "measure"):
        setattr(engine, method, _time_calls(getattr(engine, method), host))
    for t in range(5):
        engine.run_round(t)
    host.clear()
    total = seconds(lambda: [engine.run_round(t) for t in range(5, 5 + rounds)])
    share = f"{100 * sum(host) / total:.1f} % of a round"
    row(f"{name}, 100 devices, {trials} trials", "clock and bookkeeping", share)


def _time_calls(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        start = time.perf_counter()
        out = function(*args)
        spent.append(time.perf_counter() - start)
        return out

    return call


def start_up() -> None:
    """Command line and import."""
    command = [sys.executable, "-m", "otafl.cli", "--help"]
    help_s = min(seconds(lambda: subprocess.run(command, capture_output=True)) for _ in range(5))
    command = [sys.executable, "-c", "import otafl"]
    import_s = min(seconds(lambda: subprocess.run(command, capture_output=True)) for _ in range(5))
    row("start", "otafl --help", f"{help_s:.2f} s")
    row("start", "import otafl", f"{import_s:.2f} s")


def ratio(title: str, what: str, pair: Pair, places: int = 1) -> None:
    shown = [f"{x:.{places}f}" for x in (pair.ratio, pair.lowest, pair.highest)]
    row(title, what, f"{shown[0]} ({shown[1]} to {shown[2]})")


def row(title: str, what: str, value: str) -> None:
    print(f"| {title} | {what} | {value} |", flush=True)


def main() -> None:
    print("# Benchmarks\n\nMade by `python benchmarks/run.py > benchmarks/run.md`: things to")
    print("compare are run in turn, A B A B; ratios are medians of the pairs, with their range.\n")
    print(f"{name_machine()}, {torch.get_num_threads()} threads\n")
    print("| case | figure | measured |\n|---|---|---|")
    stacking("FedRLR, 784-256-256-10, K=10, batch 6, R=4, GBMA", FEDRLR, 200)
    small = {**FEDRLR, "data": "digits", "model": {"name": "mlp", "hidden": [32]}}
    stacking("FedRLR, 64-32-10, K=10, batch 6, R=4 (quickstart size)", small, 200)
    fedavg_small = {
        **small,
        "algorithm": {"name": "fedavg", "learning_rate": 0.2},
        "training": {"rounds": 100000, "local_steps": 5, "batch_size": 20},
    }
    stacking("FedAvg, 64-32-10, K=10, 5 steps of 20 (the quickstart)", fedavg_small, 100)
    fedavg()
    threads()
    batched_or_vmap()
    evaluation()
    uplink()
    bookkeeping("FedAvg", FEDAVG, 2, 10)
    bookkeeping("FedRLR", FEDRLR, 10, 50)
    start_up()
    sys.stdout.flush()
    # in a program of its own, with nothing of the above in its memory
    subprocess.run([sys.executable, ROOT / "benchmarks" / "sweep.py"], check=True)
    print(NOTE)


if __name__ == "__main__":
    main()
