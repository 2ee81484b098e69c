"""A round of personalised methods beside what a user would write: 100 devices, 784-100-10, 20 local
steps on minibatches of 20, all devices training. Prints a Markdown page.

    python benchmarks/personal.py [--threads 1 2] > results/benchmarks_personal.md

The samples are random numbers of Fashion-MNIST's size: what they are does not change the time.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from page import header, row, three
from plain_loop import PlainFedAvg
from timing import seconds, side_by_side
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import otafl
from otafl.assembly import assemble
from otafl.data import DataSet
from otafl.engine import Engine
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

Made by `python benchmarks/personal.py > results/benchmarks_personal.md`. 100 devices, all training,
784-100-10, 20 local steps on minibatches of 20, K = 5 proximal steps. The plain form is a loop over
devices with one nn.Module each, autograd, and torch's fused updates of parameter lists in place.
Both run in turn, A B A B, and times are medians, ratios medians of the pairs with their range.
Operations are of matrix products, two for a multiplication and an addition; the floor is the time
that they take at the rate of one large matrix product."""


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
        self.engine = Engine(assemble(expand(scenario), [0]))
        self.next = 0

    def __call__(self) -> None:
        self.engine.round(self.next)
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

    def __init__(self, x: Tensor, y: Tensor, index: Tensor, prior: bool) -> None:
        self.x, self.y, self.index, self.prior = x, y, index, prior
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

    def step(
        self, module: nn.Module, theta: list[Tensor], w: list[Tensor], last: list[Tensor], own: Any
    ) -> None:
        """w and theta after a local step, in place."""
        batch = self.batch(own)
        data = [p.data for p in theta]
        mean = w
        if self.prior:
            pull = torch._foreach_sub(last, data)
            torch._foreach_copy_(data, w)
            inner = self.gradient(module, theta, *self.batch(own))
            torch._foreach_add_(data, inner, alpha=-ALPHA)
            torch._foreach_add_(w, self.gradient(module, theta, *batch), alpha=-ALPHA)
            mean = torch._foreach_sub(w, pull, alpha=ETA)
        torch._foreach_copy_(data, w)
        for _ in range(PROX):
            grads = self.gradient(module, theta, *batch)
            torch._foreach_lerp_(data, mean, ALPHA * PENALTY)
            torch._foreach_add_(data, grads, alpha=-ALPHA)
        move = torch._foreach_sub(data, mean)
        torch._foreach_add_(w, move, alpha=ALPHA * PENALTY)


def plain(name: str, ours: Ours) -> Callable[[], None]:
    """The plain form of a method, on the same samples."""
    data = ours.engine.parts.data
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    index = torch.arange(len(y)).view(DEVICES, -1)
    if name == "fedavg":
        return PlainFedAvg(x, y, index, HIDDEN, STEPS, BATCH, ALPHA).round
    return PlainPersonal(x, y, index, prior=name == "pfedbred mh").round


def operations(call: Callable[[], None]) -> int:
    """Of matrix products. torch's counter does not know products in place."""

    def in_place(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a[0] * a[1] * a[2] * b[2]

    known = {torch.ops.aten.baddbmm_: in_place}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        call()
    return counter.get_total_flops()


def product_rate() -> float:
    """Operations a second of a large matrix product."""
    side = 1024
    a, b = torch.rand(side, side), torch.rand(side, side)
    times = [seconds(lambda: a @ b) for _ in range(9)]
    return 2.0 * side**3 / statistics.median(times)


def section(threads: int, pairs: int) -> None:
    torch.set_num_threads(threads)
    rate = product_rate()
    print(f"\n## Threads: {threads}\n\nA product of 1024 x 1024: {rate / 1e9:.0f} GFLOP/s.\n")
    header(
        "method",
        "otafl, ms",
        "plain, ms",
        "plain / otafl",
        "otafl, GFLOP",
        "plain, GFLOP",
        "otafl, floor, ms",
        "otafl / floor",
    )
    for name, algorithm in METHODS.items():
        ours = Ours(algorithm)
        other = plain(name, ours)
        pair = side_by_side(ours, other, pairs)
        own, theirs = operations(ours), operations(other)
        floor = own / rate
        row(
            name,
            three(1e3 * pair.fast_s),
            three(1e3 * pair.slow_s),
            f"{pair.ratio:.1f} ({pair.lowest:.1f} to {pair.highest:.1f})",
            three(own / 1e9),
            three(theirs / 1e9),
            three(1e3 * floor),
            f"{pair.fast_s / floor:.2f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = sorted({1, torch.get_num_threads()})
    parser.add_argument("--threads", type=int, nargs="+", default=default)
    parser.add_argument("--pairs", type=int, default=7, help="pairs of rounds to time")
    chosen = parser.parse_args()
    print(PAGE)
    processor = platform.processor() or platform.machine()
    print(f"\ntorch {torch.__version__}, otafl {otafl.__version__}, {processor}, float32")
    for threads in chosen.threads:
        section(threads, chosen.pairs)


if __name__ == "__main__":
    main()
