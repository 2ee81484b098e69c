"""Time of a device's training step and of inference at each model size, on a processor thread:
FedHM's ranks and HeteroFL's widths of one network, in turn with the dense one.

    OMP_NUM_THREADS=1 python benchmarks/levels.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from page import name_machine
from timing import side_by_side

from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.models.network import Network

SAMPLES, SIDE, CLASSES = 32, 28, 10
MODELS: tuple[tuple[str, dict[str, Any], tuple[float, ...]], ...] = (
    ("resnet", {"stem_stride": 2}, (1.0, 0.68, 0.54, 0.45)),
    ("resnet18", {}, (1.0, 0.62, 0.5, 0.35)),
)
RATIOS = (1.0, 0.5, 0.25, 0.125)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"One device, {SAMPLES} samples of {SIDE}x{SIDE}, one thread, {name_machine()}\n")
    print("| model | size | parameters | MACs | training step | inference |")
    print("|---|---|---|---|---|---|")
    for name, settings, widths in MODELS:
        config = registry.load_settings_class("model", name)(name=name, **settings)
        model = registry.load_component("model", name)(config, (SIDE, SIDE), CLASSES)
        dense = model.build_network(lambda channels: channels)
        sizes = [(f"rank {ratio:g}", low_rank(dense, model, ratio)) for ratio in RATIOS[1:]]
        sizes += [(f"width {width:g}", slim(model, width)) for width in widths[1:]]
        row(name, "dense", dense, "1", "1")
        for what, network in sizes:
            calls = max(1, int(2e8 / SAMPLES / dense.macs))  # a few ms and more at a time
            ratios = [
                side_by_side(run(network, calls), run(dense, calls), args.turns).ratio
                for run in (training, inference)
            ]
            row(name, what, network, *(f"{1.0 / ratio:.2f}" for ratio in ratios))
    print("\nTimes over the dense network's, medians of pairs in turn.")


def low_rank(dense: Network, model: Any, ratio: float) -> Network:
    """As FedHM: behind the dense prefix, ranks of so many of the output channels."""
    names = dense.factorisable_names[model.dense_prefix :]
    outputs = {name: dense.shapes[f"{name}.weight"][0] for name in names}
    return dense.replace_ranks({name: max(1, round(ratio * n)) for name, n in outputs.items()})


def slim(model: Any, width: float) -> Network:
    network: Network = model.build_network(lambda channels: max(1, round(width * channels)))
    return network


def row(*cells: object) -> None:
    name, what, network, *times = cells
    assert isinstance(network, Network)
    print(
        f"| {name} | {what} | {network.num_params:,} | {network.macs:,} | "
        + " | ".join(map(str, times))
        + " |"
    )


def start(network: Network) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    params = network.init(lambda name, shape: torch.rand(1, *shape, generator=generator))
    return params, torch.randn(1, SAMPLES, SIDE, SIDE, generator=generator)


def training(network: Network, calls: int) -> Callable[[], None]:
    params, x = start(network)
    batch = Batch(x, torch.arange(SAMPLES)[None] % CLASSES, None)
    step = torch.tensor([0.01])

    def once() -> None:
        for _ in range(calls):
            network.take_sgd_step_(params, batch, step)

    return once


def inference(network: Network, calls: int) -> Callable[[], None]:
    params, x = start(network)
    params = params | network.moments(params, x)

    @torch.inference_mode()
    def once() -> None:
        for _ in range(calls):
            network.logits(params, x)

    return once


if __name__ == "__main__":
    main()
