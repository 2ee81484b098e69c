"""A chain of layers as a network whose width and rank can be cut."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.models.base import Layer
from otafl.models.network import Conv, Linear, MaxPool, Network, Relu, Step


def network_of(layers: Sequence[Layer], slope: float) -> Network:
    """The same functions of the samples, convolutions and linear layers "layer0", .. with other
    parameters: a convolution's by output, input, height, width, and the last images read in the
    order channel, height, width. slope: of the activation below zero."""
    first = layers[0]
    if first.window is None:
        image = (first.inputs, 1, 1)
    else:
        image = (first.window.channels, first.window.height, first.window.width)
    width, pixels = image[0], 1
    steps: list[Step] = []
    for number, layer in enumerate(layers):
        name, inner = f"layer{number}", number > 0
        if layer.window is None:
            last = number == len(layers) - 1
            steps.append(Linear(name, width, layer.outputs, pixels, inner, last))
            pixels = 1
        else:
            w = layer.window
            conv = Conv(name, width, layer.outputs, w.kernel, w.stride, w.padding, True, inner)
            steps += [conv, MaxPool(w.pool)] if w.pool > 1 else [conv]
            pixels = w.features
        steps.append(Relu(slope))
        width = layer.outputs
    return Network(image, tuple(steps[:-1]))
