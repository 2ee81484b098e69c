"""Convolutions of n devices' kernels on a processor thread: one grouped call against a call for
each device, and images with their channels last in memory against first, layer by layer and in
whole networks, forward and backward.

    OMP_NUM_THREADS=1 python benchmarks/network.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from page import name_machine
from timing import side_by_side
from torch import Tensor
from torch.nn import functional

from otafl.core import registry
from otafl.core.contracts import Batch
from otafl.models.network import Network

DEVICES, SAMPLES, SIDE, CLASSES = 10, 16, 28, 10

LAYERS = (  # inputs, outputs, side of the image, kernel, stride
    (1, 8, 28, 3, 1),
    (8, 8, 28, 3, 1),
    (8, 16, 28, 3, 2),
    (16, 32, 14, 3, 1),
    (32, 64, 7, 3, 1),
    (8, 16, 28, 1, 2),
    (64, 64, 28, 3, 1),
    (128, 128, 14, 3, 1),
    (256, 256, 7, 3, 1),
)
NETWORKS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("conv_net", {}, 10),
    ("vgg", {}, 10),
    ("resnet", {}, 10),
    ("resnet", {"norm": "group"}, 10),
    ("resnet", {"channels": [16, 32, 64]}, 10),
    ("resnet18", {}, 2),
    ("vgg11", {}, 2),
)


class ChannelsFirst(Network):
    """Images as they come."""

    def lay_out(self, images: Tensor) -> Tensor:
        return images


def main() -> None:
    torch.set_num_threads(1)
    print(f"{DEVICES} devices, {SAMPLES} samples, one thread, {name_machine()}\n")
    print("| layer | grouped, ms | a call each | channels first |\n|---|---|---|---|")
    for layer in LAYERS:
        few = 3 if layer[0] >= 64 else 5
        each = side_by_side(layer_of(*layer), layer_of(*layer, grouped=False), few)
        first = side_by_side(layer_of(*layer), layer_of(*layer, last=False), few)
        inputs, outputs, side, kernel, stride = layer
        name = f"{inputs} to {outputs}, {kernel}x{kernel}, {side}x{side} pixels, stride {stride}"
        print(f"| {name} | {1e3 * each.fast_s:.1f} | {each.ratio:.2f} | {first.ratio:.2f} |")
    print("\n| network | devices | channels last, ms | channels first |\n|---|---|---|---|")
    for name, settings, devices in NETWORKS:
        config = registry.load_settings_class("model", name)(name=name, **settings)
        network = registry.load_component("model", name)(config, (SIDE, SIDE), CLASSES)
        few = 3 if network.num_params > 1e6 else 5
        plain = ChannelsFirst(network.image, network.layers)
        pair = side_by_side(step_of(network, devices), step_of(plain, devices), few)
        what = " ".join([name, *(f"{key} {value}" for key, value in settings.items())])
        print(f"| {what} | {devices} | {1e3 * pair.fast_s:.0f} | {pair.ratio:.2f} |")
    print("\nRatios of times to the first column's, medians of pairs in turn.")


def layer_of(
    inputs: int,
    outputs: int,
    side: int,
    kernel: int,
    stride: int,
    grouped: bool = True,
    last: bool = True,
) -> Callable[[], None]:
    """Forward and backward pass of a convolution."""
    x = torch.randn(SAMPLES, DEVICES * inputs, side, side)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(DEVICES * outputs, inputs, kernel, kernel)

    def run() -> None:
        a, b = x.detach().requires_grad_(), weight.detach().requires_grad_()
        if grouped:
            y = functional.conv2d(a, b, None, stride, kernel // 2, groups=DEVICES)
        else:
            pairs = zip(a.chunk(DEVICES, 1), b.chunk(DEVICES, 0), strict=True)
            rows = [functional.conv2d(one, w, None, stride, kernel // 2) for one, w in pairs]
            y = torch.cat(rows, 1)
        y.backward(torch.ones_like(y))

    return run


def step_of(network: Network, devices: int) -> Callable[[], object]:
    """Loss and gradients of a minibatch."""
    params = {name: torch.randn(devices, *s) / 20 for name, s in network.shapes.items()}
    x = torch.randn(devices, SAMPLES, SIDE, SIDE)
    batch = Batch(x, torch.randint(0, CLASSES, (devices, SAMPLES)), None)
    return lambda: network.compute_gradients(params, batch)


if __name__ == "__main__":
    main()
