"""What low rank costs and saves: a FedRLR round against the layer's sides, beside dense training,
and inference in factors beside dense, sparse and quantised layers. Prints a Markdown page and
draws two figures.

    python benchmarks/low_rank.py > benchmarks/low_rank.md
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import inference_time
import numpy as np
import torch
from matplotlib import pyplot as plt
from page import header, name_machine, normal, orthonormal_point, row, three
from timing import seconds
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import Batch, Cohort, Context, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.models.layered import Pair
from otafl.models.softmax_regression import SoftmaxRegression
from otafl.plots import COLOURS, LINES, MARKERS

DEVICES, BATCH = 10, 6
SIDES = [256 * 2**i for i in range(7)]
LARGEST_DENSE, LARGEST_SVD = 8192, 1024
RANKS = (4, 16)
SLOPES = {"2,048 to 8,192": (2048, 8192), "4,096 to 16,384": (4096, 16384)}
RANK_SLOPES = ((1, 4), (4, 16), (16, 64))
DENSE = "dense SGD step"
DENSE_SVD = "dense step and SVD"

PAGE = """\
# Low rank: what it costs and what it saves

Made by `python benchmarks/low_rank.py > benchmarks/low_rank.md` on one thread. Things to compare
run in turn, A B A B; times are medians, ratios medians of the pairs with their range.
"""
ROUND = f"""
## A round of FedRLR, beyond the forward pass

One layer with M = N, {DEVICES} devices in one batch, batch size {BATCH}, one local step, in
milliseconds. Devices: gradient in factors, projection, retraction and coding. Server: the product
of the two sums, refactored. Dense SGD step: W - eta x^T g of each device, and nothing else of a
round. Dense step and SVD: the retraction (18) as printed, {DEVICES} times that of one device. An
exponent of 1 in M is O((M+N)R), and 2 is dense algebra; a small layer's time is that of calls."""
OPERATIONS = """
### Operations

Floating-point operations of a round's matrix products, as torch counts them, without the
decompositions of thin matrices.
"""

Call = Callable[[], object]


class OneLayer(SoftmaxRegression):
    """A layer of equal sides whose gradient's factors are given: no forward pass, no loss."""

    def __init__(self, side: int) -> None:
        super().__init__(self.Settings(), (side,), side)
        x, g = normal(0, DEVICES, BATCH, side), normal(1, DEVICES, BATCH, side)
        self.pair = Pair(x, g.mul_(1e-3))
        self.xu = torch.empty(0)

    def compute_pairs(self, params: Any, batch: Batch) -> tuple[Tensor, list[Pair]]:
        params[self.layers[0].weight].xu = self.xu  # kept from the forward pass
        return torch.zeros(DEVICES), [self.pair]


class OneStep:
    """Local work of a single step."""

    steps = 1

    def draw_batch(self, step: int, draw_index: int = 0) -> None:
        """The model has its own."""


class Round:
    """The two halves of a FedRLR round of 10 devices: `devices` is gradient, projection,
    retraction and coding; `server` refactors the product of the sums."""

    def __init__(self, side: int, rank: int) -> None:
        model = OneLayer(side)
        point = orthonormal_point(side, side, rank, DEVICES)
        model.xu = torch.bmm(model.pair.x, point.u)
        self.algorithm = FedRLR(FedRLR.Settings(rank=rank), model, DEVICES)
        rows = torch.arange(DEVICES)
        share = torch.full((DEVICES,), 1.0 / DEVICES)
        self.cohort = Cohort.create(torch.zeros_like(rows), rows, share, (DEVICES,), DEVICES)
        self.hyper = {"q": 2.0, "nu": 1000.0, "c1": 0.006, "mu": 3.0}
        self.hyper = {name: torch.tensor([value]) for name, value in self.hyper.items()}
        self.streams = Streams([0], [0])
        bias = torch.zeros(DEVICES, side)
        self.own = {"u0": point.u, "s0": point.s, "v0": point.v, "b0": bias}
        self.theta_0 = {name: block[:1] for name, block in self.own.items()}
        _, payload, _ = self.devices()
        sums = tuple({name: b.sum(0, True) for name, b in g.tensors.items()} for g in payload)
        self.received = Received(sums, (torch.ones(1),) * 2, None, None)

    def devices(self) -> Any:
        broadcast = self.algorithm.broadcast(self.theta_0, self.cohort)
        broadcast = broadcast.expand_rows(self.cohort, 0, DEVICES)
        context = LocalContext(self.cohort, self.hyper, self.streams, 0, OneStep())
        return self.algorithm.run_local_update(broadcast, self.own, context)

    def server(self) -> Tensors:
        context = Context(self.cohort, self.hyper, self.streams, 0)
        return self.algorithm.update_server(self.theta_0, self.received, context)


def dense_step(side: int) -> Call:
    """W <- W - eta x^T g of each device, each with weights of its own: less than a round."""
    x, g = OneLayer(side).pair
    weight = torch.zeros(DEVICES, side, side)
    return lambda: weight.baddbmm_(x.mT, g, alpha=-1e-3)


def dense_step_and_svd(side: int) -> Call:
    """The retraction (18) as printed, of one device: a dense step, then a truncated SVD."""
    x, g = OneLayer(side).pair
    weight = normal(4, side, side)

    def step() -> Tensor:
        u, s, vt = torch.linalg.svd(torch.addmm(weight, x[0].T, g[0], alpha=-1e-3))
        return (u[:, : RANKS[0]] * s[: RANKS[0]]) @ vt[: RANKS[0]]

    return step


def time_in_turn(calls: dict[str, Call], turns: int = 9) -> dict[str, float]:
    """Median seconds of each, A B C A B C ..., each called twice to warm up."""
    for call in calls.values():
        call(), call()
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(turns)]
    return {name: statistics.median(turn[name] for turn in taken) for name in calls}


def costs(sides: Iterable[int], ranks: Sequence[int], dense: bool) -> dict[str, dict[int, float]]:
    """Name -> side -> seconds of a round of 10 devices."""
    found: dict[str, dict[int, float]] = {}
    for side in sides:
        calls: dict[str, Call] = {}
        for rank in ranks:
            fedrlr = Round(side, rank)
            calls |= {f"devices, R={rank}": fedrlr.devices, f"server, R={rank}": fedrlr.server}
        if dense and side <= LARGEST_DENSE:
            calls[DENSE] = dense_step(side)
        times = time_in_turn(calls, turns=15 if side <= LARGEST_DENSE // 4 else 7)
        if dense and side <= LARGEST_SVD:
            one = time_in_turn({DENSE_SVD: dense_step_and_svd(side)}, turns=3)
            times[DENSE_SVD] = DEVICES * one[DENSE_SVD]
        for rank in ranks:
            times[f"round, R={rank}"] = times[f"devices, R={rank}"] + times[f"server, R={rank}"]
        for name, value in times.items():
            found.setdefault(name, {})[side] = value
    return found


def slope(curve: dict[int, float], low: int, high: int) -> float:
    """Least-squares exponent of the points from low to high; NaN where the curve ends earlier."""
    if max(curve) < high:
        return float("nan")
    at = [side for side in curve if low <= side <= high]
    return float(np.polyfit(np.log(at), np.log([curve[side] for side in at]), 1)[0])


def cost_section() -> dict[str, dict[int, float]]:
    found = costs(SIDES, RANKS, dense=True)
    columns = [f"{part}, R={r}" for r in RANKS for part in ("devices", "server", "round")]
    columns += [DENSE, DENSE_SVD]
    print("\n### Time\n")
    header("M = N", *columns)
    for side in SIDES:
        cells = (found[name].get(side) for name in columns)
        row(f"{side:,}", *("" if cell is None else three(1e3 * cell) for cell in cells))
    for title, (low, high) in SLOPES.items():
        slopes = [slope(found[name], low, high) for name in columns]
        row(f"exponent, {title}", *("" if np.isnan(s) else f"{s:.2f}" for s in slopes))
    return found


def operation_section() -> None:
    print(OPERATIONS)
    header("M = N", *(f"round, R={rank}" for rank in RANKS), DENSE)
    sides = [side for side in SIDES if side <= LARGEST_DENSE]
    counted: list[dict[int, float]] = [{} for _ in range(len(RANKS) + 1)]
    for side in sides:
        rounds = [Round(side, rank) for rank in RANKS]
        counts = [operations(r.devices) + operations(r.server) for r in rounds]
        counts.append(operations(dense_step(side)))
        for curve, number in zip(counted, counts, strict=True):
            curve[side] = number
        row(f"{side:,}", *(f"{number:,}" for number in counts))
    row("exponent, all", *(f"{slope(curve, sides[0], sides[-1]):.3f}" for curve in counted))


def operations(call: Call) -> int:
    """Of matrix products. torch's counter does not know baddbmm in place."""

    def count_in_place(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a[0] * a[1] * a[2] * b[2]

    known = {torch.ops.aten.baddbmm_: count_in_place}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        call()
    return counter.get_total_flops()


def rank_section(side: int = 4096, ranks: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)) -> None:
    """Growth with R."""
    found = costs([side], ranks, dense=False)
    times = {rank: found[f"round, R={rank}"][side] for rank in ranks}
    print(f"\n### Time with the rank, M = N = {side:,}\n")
    header("R", *map(str, ranks))
    row("round", *(three(1e3 * times[rank]) for rank in ranks))
    exponents = [f"{slope(times, *ends):.2f} from {ends[0]} to {ends[1]}" for ends in RANK_SLOPES]
    print(f"\nExponent in R: {', '.join(exponents)}.")


def draw_costs(found: dict[str, dict[int, float]], path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
    curves = [f"round, R={rank}" for rank in RANKS] + [DENSE, DENSE_SVD]
    labels = [f"FedRLR round, R={rank}" for rank in RANKS]
    labels += ["dense SGD step alone", "dense step, truncated SVD"]
    for i, (name, label) in enumerate(zip(curves, labels, strict=True)):
        sides, times = list(found[name]), [1e3 * t for t in found[name].values()]
        axis.plot(sides, times, color=COLOURS[i], marker=MARKERS[i], ls=LINES[i], ms=5, label=label)
    at = np.array([2048.0, 8192.0])
    for power, name, label in ((1, curves[1], "$\\propto M$"), (2, DENSE, "$\\propto M^2$")):
        guide = 1.5e3 * found[name][8192] * (at / at[1]) ** power
        axis.plot(at, guide, color="0.45", lw=1)
        axis.annotate(label, (at[1], guide[1]), (4, -2), color="0.35", textcoords="offset points")
    axis.set(xscale="log", yscale="log", xlabel="sides of the layer, M = N")
    axis.set(ylabel=f"time of a round of {DEVICES} devices (ms)")
    axis.set_xticks(SIDES, [str(side) for side in SIDES])
    axis.minorticks_off()
    axis.grid(color="0.9", lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).parent.parent / "results" / "pictures"
    parser.add_argument("--figures", type=Path, default=default, help="folder of the figures")
    figures = parser.parse_args().figures
    torch.set_num_threads(1)
    print(PAGE)
    print(f"{name_machine()}, float32")
    print(ROUND)
    with torch.inference_mode():
        found = cost_section()
        rank_section()
        operation_section()
    draw_costs(found, figures / "low_rank_cost.png")
    print("\n![Time of a round by the layer's sides](../results/pictures/low_rank_cost.png)")
    print(inference_time.TEXT)
    inference_time.draw(inference_time.section(), figures / "inference_time.png")
    print("\n![Inference time relative to dense](../results/pictures/inference_time.png)")


if __name__ == "__main__":
    main()
