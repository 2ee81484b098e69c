"""Time of a forward pass of what one would deploy: dense, factored, pruned and int8 layers. A part
of low_rank.py's page.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from page import duration, header, normal, orthonormal_point, row, three
from timing import Pair, seconds, side_by_side
from torch import Tensor, nn

from otafl.factorised.lowrank import LowRank
from otafl.models import LayeredModel
from otafl.models.linear_layer import make_chain
from otafl.plots import COLOURS

NETWORKS = {
    "784-256-256-10": (784, 256, 256, 10),
    "4096-4096": (4096,) * 2,
}
RANKS = (1, 4, 16, 64)
KEPT = 1 / 32
"""Non-zeros that the pruning baseline keeps, 3.125 %."""

TEXT = """
## Inference (the paper's Fig. 10)

Weights are random, because time depends on shapes and on how many weights are kept. Factored: two
thin linear layers in place of each. Dense is the uncompressed benchmark, and nuclear-norm training
too. Pruned: the largest weights in compressed rows, indices not counted. int8: dynamically
quantised linear layers. The rows of dense beside itself show how far ratios can be trusted."""


class SparseLinear(nn.Module):
    """A pruned layer: weight [N, M] in compressed rows (CSR)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        kept = weight.abs().flatten().topk(round(KEPT * weight.numel())).indices
        mask = torch.zeros(weight.numel()).index_fill_(0, kept, 1.0).view_as(weight)
        self.weight, self.bias = (weight * mask).to_sparse_csr(), bias[:, None]

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, self.weight, x.T).T


def build_factored(sides: Sequence[tuple[int, int]], points: Sequence[LowRank]) -> nn.Module:
    """What a trained low-rank model is exported as."""
    model = LayeredModel(make_chain([sides[0][0], *(n for _, n in sides)]))
    params = {f"b{i}": torch.zeros(1, n) for i, (_, n) in enumerate(sides)}
    for i, point in enumerate(points):
        params |= {f"{part}{i}": block for part, block in zip("usv", point, strict=True)}
    module = model.build_module({name: one[0] for name, one in params.items()}, sides[0][:1])
    assert module is not None
    return module


def chain(layers: Sequence[nn.Module]) -> nn.Sequential:
    """With ReLU between the layers, as `factored` has it."""
    modules: list[nn.Module] = [nn.Flatten()]
    for layer in layers:
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def build_deployed(widths: Sequence[int]) -> dict[str, tuple[nn.Module, int]]:
    """Name -> model and how many numbers it stores, the sparse indices aside; "dense" first."""
    sides = list(itertools.pairwise(widths))
    layers = [nn.Linear(m, n) for m, n in sides]
    biases = sum(widths[1:])
    weights = sum(m * n for m, n in sides)
    models: dict[str, tuple[nn.Module, int]] = {"dense": (chain(layers), weights + biases)}
    for rank in RANKS:
        points = [orthonormal_point(m, n, min(rank, m, n)) for m, n in sides]
        model = build_factored(sides, points)
        models[f"factored, R={rank}"] = (model, sum(p.numel() for p in model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR layout a beta, its int8 layers old
        sparse = chain([SparseLinear(one.weight.detach(), one.bias.detach()) for one in layers])
        int8 = torch.ao.quantization.quantize_dynamic(chain(layers), {nn.Linear}, torch.qint8)
    stored = sum(round(KEPT * m * n) for m, n in sides)
    models[f"pruned to {100 * KEPT:.4g} %, CSR"] = (sparse, stored + biases)
    models["int8, dynamic"] = (int8, weights + biases)
    return models


Call = Callable[[], object]


def repeat_call(model: nn.Module, x: Tensor) -> tuple[Call, int]:
    """A call of the model several times over, so that one takes a millisecond or more."""
    for _ in range(3):
        model(x)
    times = max(1, round(1e-3 / min(seconds(lambda: model(x)) for _ in range(5))))

    def call() -> None:
        for _ in range(times):
            model(x)

    return call, times


@torch.no_grad()
def section() -> dict[tuple[str, int], dict[str, Pair]]:
    """(network, batch) -> method -> times beside dense ones."""
    print()
    header("network", "batch", "model", "numbers stored", "time", "dense / model")
    found: dict[tuple[str, int], dict[str, Pair]] = {}
    for network, widths in NETWORKS.items():
        models = build_deployed(widths)
        for batch in (1, 256):
            x = normal(5, batch, widths[0])
            calls = {name: repeat_call(model, x) for name, (model, _) in models.items()}
            dense, dense_calls = calls["dense"]
            for name, (call, times) in calls.items():
                pair = side_by_side(call, dense, pairs=7 if max(widths) > 1024 else 15)
                scale = times / dense_calls
                pair = Pair(
                    pair.fast_s / times,
                    pair.slow_s / dense_calls,
                    *(scale * r for r in (pair.ratio, pair.lowest, pair.highest)),
                )
                found.setdefault((network, batch), {})[name] = pair
                ratio = f"{three(pair.ratio)} ({three(pair.lowest)} to {three(pair.highest)})"
                stored = f"{models[name][1]:,}"
                row(network, batch, name, stored, duration(pair.fast_s), ratio)
    return found


def draw(found: dict[tuple[str, int], dict[str, Pair]], path: Path) -> None:
    figure, axes = plt.subplots(
        2, len(NETWORKS), figsize=(12, 6), layout="constrained", sharey=True, sharex=True
    )
    for axis, network in zip(axes[0], NETWORKS, strict=True):
        axis.set_title(network)
    for axis, ((_, batch), times) in zip(axes.T.flat, found.items(), strict=True):
        names = list(times)
        colours = [COLOURS[0 if "factored" in name else 1] for name in names]
        relative = [1.0 / times[name].ratio for name in names]
        relative[0] = 1.0  # dense itself
        axis.barh(names, np.array(relative) - 1.0, left=1.0, color=colours, height=0.7)
        for place, (name, at) in enumerate(zip(names, relative, strict=True)):
            label = duration(times[name].fast_s)
            axis.annotate(
                label,
                (max(at, 1.0), place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axis.axvline(1.0, color="0.3", lw=0.8)
        axis.set_xscale("log")
        axis.set_xlabel(f"batch {batch}: time / dense")
        axis.tick_params(labelbottom=True)
        axis.grid(axis="x", color="0.9", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].invert_yaxis()
    figure.savefig(path, dpi=150)
