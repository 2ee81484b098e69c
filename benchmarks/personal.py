"""A round of personalised methods beside what a user would write: 100 devices, 784-100-10, 20 local
steps on minibatches of 20, all devices training. Prints a Markdown page.

    python benchmarks/personal.py [--threads 1 2] > benchmarks/personal.md

The samples are random numbers of Fashion-MNIST's size: what they are does not change the time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from page import header, name_machine, row, three
from plain_loop import PlainFedAvg, mlp
from timing import seconds
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from otafl.data import DataSet
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

DEVICES, HIDDEN, STEPS, BATCH, PROX = 100, 100, 20, 20, 5
PENALTY, ALPHA, ETA = 15.0, 0.01, 0.05
METHODS: dict[str, dict[str, Any]] = {
    "pfedbred mh": {"name": "pfedbred", "strategy": "mh"},
    "pfedme": {"name": "pfedme"},
    "fedavg": {"name": "fedavg", "learning_rate": ALPHA},
}
PAGE = """\
# Personalised methods: a round beside a plain loop

Made by `python benchmarks/personal.py > benchmarks/personal.md`. 100 devices, all training,
784-100-10, 20 local steps on minibatches of 20, K = 5 proximal steps. The plain form is a loop over
devices with one nn.Module each and autograd. "Plain" updates each parameter by its formula, as the
methods' public programs do; "lean" by torch's fused updates of lists of parameters. All run in
turn, and times are medians, ratios medians over the turns with their range. Operations are of
matrix products; the floor is the time that otafl's take at the rate of one large matrix product,
which compiled steps can pass."""


class Ours:
    """Calls run one further round of an engine."""

    def __init__(self, algorithm: dict[str, Any]) -> None:
        scenario = load_scenario(
            {
                "name": "personal",
                "data": {"name": "personal:random_data"},
                "model": {"name": "mlp", "hidden": [HIDDEN]},
                "algorithm": algorithm,
                "transport": "ideal",
                "devices": {"count": DEVICES},
                "training": {"rounds": 10**6, "local_steps": STEPS, "batch_size": BATCH},
                "engine": {"device": "cpu"},
            }
        )
        points = expand(scenario)
        self.engine = Engine(assemble(points, [0]))
        self.next = 0

    def __call__(self) -> None:
        self.engine.run_round(self.next)
        self.next += 1


def random_data() -> DataSet:
    """60,000 samples of 784 numbers in ten classes."""
    generator = np.random.default_rng(0)
    x = generator.random((61000, 784), dtype=np.float32)
    y = generator.integers(0, 10, 61000)
    return DataSet(x[1000:], y[1000:], x[:1000], y[:1000], classes=10)


class PlainPersonal:
    """pFedMe, or pFedBreD's mh with `prior`: x [n, 784], y [n]; index [K, n_k] samples of each
    device. Each has a module, whose parameters are theta, and its last local model."""

    def __init__(self, x: Tensor, y: Tensor, index: Tensor, prior: bool, lean: bool) -> None:
        self.x, self.y, self.index, self.prior = x, y, index, prior
        self.step = self.lean_step if lean else self.plain_step
        self.loss = nn.CrossEntropyLoss()
        self.modules = [
            nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
            for _ in index
        ]
        self.server = [p.detach().clone() for p in self.modules[0].parameters()]
        for module in self.modules:
            module.load_state_dict(self.modules[0].state_dict())
        self.last = [[p.clone() for p in self.server] for _ in index]

    def batch(self, own: Tensor) -> tuple[Tensor, Tensor]:
        sample = own[torch.randint(len(own), (BATCH,))]
        return self.x[sample], self.y[sample]

    def gradient(self, module: nn.Module, params: list[Tensor], x: Tensor, y: Tensor) -> Any:
        return torch.autograd.grad(self.loss(module(x), y), params)

    def round(self) -> None:
        total = [torch.zeros_like(p) for p in self.server]
        for own, module, last in zip(self.index, self.modules, self.last, strict=True):
            w = [p.clone() for p in self.server]
            params = list(module.parameters())
            for _ in range(STEPS):
                self.step(module, params, w, last, own)
            if self.prior:
                torch._foreach_copy_(last, w)
            torch._foreach_add_(total, w)
        self.server = [t / len(self.index) for t in total]

    def plain_step(
        self, module: nn.Module, theta: list[Tensor], w: list[Tensor], last: list[Tensor], own: Any
    ) -> None:
        """w and theta after a local step, in place."""
        batch = self.batch(own)
        params = [p.data for p in theta]
        mean = w
        if self.prior:
            memory = [ETA * (old - p) for old, p in zip(last, params, strict=True)]
            for p, start in zip(params, w, strict=True):
                p.copy_(start)
            for p, g in zip(params, self.gradient(module, theta, *self.batch(own)), strict=True):
                p.sub_(ALPHA * g)
            for start, g in zip(w, self.gradient(module, theta, *batch), strict=True):
                start.sub_(ALPHA * g)
            mean = [start - m for start, m in zip(w, memory, strict=True)]
        for p, start in zip(params, w, strict=True):
            p.copy_(start)
        for _ in range(PROX):
            grads = self.gradient(module, theta, *batch)
            for p, g, m in zip(params, grads, mean, strict=True):
                p.sub_(ALPHA * (g + PENALTY * (p - m)))
        for start, p, m in zip(w, params, mean, strict=True):
            start.sub_(ALPHA * PENALTY * (m - p))

    def lean_step(
        self, module: nn.Module, theta: list[Tensor], w: list[Tensor], last: list[Tensor], own: Any
    ) -> None:
        """The same with fused updates."""
        batch = self.batch(own)
        params = [p.data for p in theta]
        mean = w
        if self.prior:
            pull = torch._foreach_sub(last, params)
            torch._foreach_copy_(params, w)
            inner = self.gradient(module, theta, *self.batch(own))
            torch._foreach_add_(params, inner, alpha=-ALPHA)
            torch._foreach_add_(w, self.gradient(module, theta, *batch), alpha=-ALPHA)
            mean = torch._foreach_sub(w, pull, alpha=ETA)
        torch._foreach_copy_(params, w)
        for _ in range(PROX):
            grads = self.gradient(module, theta, *batch)
            torch._foreach_lerp_(params, mean, ALPHA * PENALTY)
            torch._foreach_add_(params, grads, alpha=-ALPHA)
        move = torch._foreach_sub(params, mean)
        torch._foreach_add_(w, move, alpha=ALPHA * PENALTY)


def plain(name: str, ours: Ours, lean: bool) -> Callable[[], None]:
    """The plain form of a method, on the same samples."""
    data = ours.engine.parts.samples.data
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    index = torch.arange(len(y)).view(DEVICES, -1)
    if name == "fedavg":
        model = mlp(x.shape[1], HIDDEN)
        return PlainFedAvg(model, x, y, index, STEPS, BATCH, ALPHA).round
    return PlainPersonal(x, y, index, name == "pfedbred mh", lean).round


def operations(call: Callable[[], None]) -> int:
    """Of matrix products. torch's counter does not know products in place."""

    def count_in_place(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a[0] * a[1] * a[2] * b[2]

    known = {torch.ops.aten.baddbmm_: count_in_place}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        call()
    return counter.get_total_flops()


def product_rate() -> float:
    """Operations a second of a large matrix product."""
    side = 1024
    a, b = torch.rand(side, side), torch.rand(side, side)
    times = [seconds(lambda: a @ b) for _ in range(9)]
    return 2.0 * side**3 / statistics.median(times)


def section(threads: int, turns: int) -> None:
    torch.set_num_threads(threads)
    print(f"\n## Threads: {threads}\n")
    columns = ["otafl, ms", "plain, ms", "lean, ms", "plain / otafl", "lean / otafl"]
    columns += ["otafl, GFLOP", "plain, GFLOP", "floor, ms", "otafl / floor"]
    header("method", *columns)
    for name, algorithm in METHODS.items():
        ours = Ours(algorithm)
        calls = [ours, plain(name, ours, lean=False), plain(name, ours, lean=True)]
        for call in calls:
            call()
        times = [[seconds(call) for call in calls] for _ in range(turns)]
        rate = product_rate()
        own, theirs = operations(calls[0]), operations(calls[1])
        if name == "fedavg":  # torch does not count those of compiled steps
            own = theirs
        middle = [statistics.median(taken) for taken in zip(*times, strict=True)]
        row(
            name,
            *(three(1e3 * time_s) for time_s in middle),
            *(ratio([turn[other] / turn[0] for turn in times]) for other in (1, 2)),
            three(own / 1e9),
            three(theirs / 1e9),
            f"{1e3 * own / rate:.0f} (at {rate / 1e9:.0f} GFLOP/s)",
            f"{middle[0] * rate / own:.2f}",
        )


def ratio(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = sorted({1, torch.get_num_threads()})
    parser.add_argument("--threads", type=int, nargs="+", default=default)
    parser.add_argument("--turns", type=int, default=7, help="rounds of each to time")
    chosen = parser.parse_args()
    print(PAGE)
    print(f"\n{name_machine()}, float32")
    for threads in chosen.threads:
        section(threads, chosen.turns)


if __name__ == "__main__":
    main()
