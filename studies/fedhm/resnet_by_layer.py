"""Parameters and operations of ResNets by stage: the FedHM paper's Fig. 7.

    python -m studies.fedhm.resnet_by_layer [--out resnet_by_layer.png]

The operations are those of the paper: multiply-accumulate operations of a forward pass, two for
each number that batch normalisation handles, and one for each that ReLU does.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from otafl.core import registry
from otafl.models import layer_lists, layers
from otafl.models.layer_lists import count_costs
from otafl.plots import COLOURS
from studies.common.tables import command, print_head, print_row

NETWORKS = {
    "ResNet-18, CIFAR-10": ("resnet18", 10, 32),
    "ResNet-34, CIFAR-100": ("resnet34", 100, 32),
    "ResNet-34, Tiny-ImageNet": ("resnet34", 200, 64),
}
"""Network and data set -> component, number of classes, and side of the images in pixels."""

STAGES = ("stage1", "stage2", "stage3", "stage4", "classifier")

PAPER = {
    "ResNet-18, CIFAR-10": (
        (0.148, 0.526, 2.100, 8.394, 0.005),
        (151.8, 134.7, 134.4, 134.3, 0.005),
    ),
    "ResNet-34, CIFAR-100": (
        (0.222, 1.116, 6.822, 13.114, 0.051),
        (227.7, 286.1, 436.8, 209.9, 0.05),
    ),
    "ResNet-34, Tiny-ImageNet": (
        (0.222, 1.116, 6.822, 13.114, 0.103),
        (910.7, 1144.3, 1747.3, 839.5, 0.1),
    ),
}
"""The paper's millions of parameters and of operations, by stage."""


def iterate_operations(
    steps: Sequence[layers.Layer], image: layers.Image
) -> Iterator[tuple[layers.Layer, int]]:
    """Yield each step, inner ones of residual blocks included, with its operations."""
    for step in steps:
        if isinstance(step, layer_lists.Residual):
            yield from iterate_operations(step.body, image)
            yield from iterate_operations(step.shortcut, image)
        costs = count_costs([step], image, first=False)
        per_number = {layers.Norm: 2, layers.Relu: 1}.get(type(step), 0)
        if not isinstance(step, layer_lists.Residual):
            yield step, costs.macs + per_number * math.prod(costs.image)
        image = costs.image


def count_by_stage(name: str, classes: int, side: int) -> tuple[list[float], list[float]]:
    """Return the millions of parameters and of operations of a network, by stage."""
    kind = registry.load_component("model", name)
    network = kind(kind.Settings(name=name), (3, side, side), classes)
    params, operations = dict.fromkeys(STAGES, 0), dict.fromkeys(STAGES, 0)
    stage = ""
    for step, count in iterate_operations(network.layers, network.image):
        for own, shape, *_ in step.list_parameters():
            stage = own.partition(".")[0]
            if stage in params:
                params[stage] += math.prod(shape)
        if stage in operations:
            operations[stage] += count
    return [one / 1e6 for one in params.values()], [one / 1e6 for one in operations.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("resnet_by_layer.png"))
    counts = {title: count_by_stage(*network) for title, network in NETWORKS.items()}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, (axis, noun) in enumerate(zip(axes, ("parameters", "operations"), strict=True)):
        print_head(f"Millions of {noun} (paper)", "network", *STAGES)
        for place, (title, found) in enumerate(counts.items()):
            paper = PAPER[title][panel]
            pairs = zip(found[panel], paper, strict=True)
            print_row(title, *(f"{own:.3f} ({printed:g})" for own, printed in pairs))
            at = np.arange(len(STAGES)) + 0.27 * (place - 1)
            axis.bar(at, found[panel], 0.25, color=COLOURS[place], label=title)
            axis.plot(at, paper, "k_", label="paper" if place == 0 else None)
        axis.set(xticks=range(len(STAGES)), xticklabels=STAGES, ylabel=f"millions of {noun}")
        axis.grid(axis="y", alpha=0.3)
    axes[0].legend(fontsize=9)
    figure.savefig(parser.parse_args().out, dpi=150)


if __name__ == "__main__":
    command(main)
