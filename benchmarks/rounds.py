"""Parts of a round beside their bounds: the uplink, dispatched operations.

    OMP_NUM_THREADS=1 python benchmarks/rounds.py > benchmarks/rounds.md

Prints a Markdown page.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from link import Uplink
from page import header, name_machine, row
from timing import side_by_side
from torch.utils._python_dispatch import TorchDispatchMode

from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

PAIRS = 11
QUICKSTART: dict[str, Any] = {
    "name": "rounds",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [32]},
    "algorithm": {"name": "fedavg", "learning_rate": 0.2},
    "channel": {"name": "rayleigh", "snr_db": 20},
    "power": "gbma",
    "devices": {"count": 10},
    "training": {"rounds": 1000, "local_steps": 5, "batch_size": 20},
    "engine": {"device": "cpu", "threads": 1},
}
SOME = {"devices": {"count": 100, "participants": 10}}


class Count(TorchDispatchMode):
    """Number of operations that reach torch's kernels or make views."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


def make_engine(**sections: Any) -> Engine:
    """Return the engine of one trial of the quickstart's size, after three rounds."""
    engine = Engine(assemble(expand(load_scenario({**QUICKSTART, **sections})), range(1)))
    for t in range(3):
        engine.run_round(t)
    return engine


def compare_uplink() -> None:
    """Print the time of an uplink over that of a weighted sum of the updates."""
    for trials, devices in ((20, 10), (2, 100)):
        fading = {"name": "rayleigh", "snr_db": 20}
        uplink = Uplink(devices, 79_510, trials=trials, channel=fading, power="gbma")
        weights = torch.full((trials, 1, devices), 1.0 / devices)
        updates = uplink.x.view(trials, devices, -1)
        pair = side_by_side(
            make_sum(weights, updates), uplink, pairs=PAIRS, clock=time.process_time
        )
        title = f"{trials} trials x {devices} devices x 79,510, Rayleigh, GBMA"
        row(title, "uplink / weighted sum", spread(pair))


def make_sum(weights: torch.Tensor, updates: torch.Tensor) -> Callable[[], object]:
    """Return a function that sums the updates [S, K, P] with weights [S, 1, K]."""
    return lambda: torch.bmm(weights, updates)


def count_operations() -> None:
    """Print how many operations each part of a round dispatches."""
    for title, engine in {
        "FedAvg, all of 10 devices, over the air": make_engine(),
        "FedAvg, 10 of 100 devices, ideal uplink": make_engine(**SOME, transport="ideal"),
        "FedRLR, all of 10 devices, over the air": make_engine(
            algorithm={"name": "fedrlr", "rank": 4}
        ),
    }.items():
        found: Counter[str] = Counter()
        for name in ("train_and_encode", "deliver", "update_server", "measure"):
            setattr(engine, name, count_calls(getattr(engine, name), found, name))
        with Count() as every:
            engine.run_round(3)
        parts = (f"{name} {number}" for name, number in found.items())
        row(title, "operations in a round", f"{every.total}: {', '.join(parts)}")


def count_calls(call: Callable[..., Any], found: Counter[str], name: str) -> Callable[..., Any]:
    """Return a function that adds the operations of its calls to `found`."""

    def count(*given: Any) -> Any:
        with Count() as own:
            out = call(*given)
        found[name] += own.total
        return out

    return count


def spread(pair: Any) -> str:
    """Return a ratio with its range."""
    return f"{pair.ratio:.2f} ({pair.lowest:.2f} to {pair.highest:.2f})"


def main() -> None:
    """Print the page."""
    torch.set_num_threads(1)
    print("# Parts of a round beside their bounds\n")
    print("Made by `OMP_NUM_THREADS=1 python benchmarks/rounds.py > benchmarks/rounds.md`.")
    print("Things to compare run in turn, A B A B; times are processor seconds of one thread, and")
    print("ratios medians of 11 pairs with their range.\n")
    print(f"{name_machine()}\n")
    header("case", "figure", "measured")
    compare_uplink()
    count_operations()


if __name__ == "__main__":
    main()
