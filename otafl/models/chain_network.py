"""Conversion of a chain of layers to a network of another width."""

from __future__ import annotations

from otafl.core.errors import UserError
from otafl.models import layer_steps as plan
from otafl.models.layered import LayeredModel
from otafl.models.network import Network


def to_network(model: LayeredModel, channels: plan.Channels) -> Network:
    """Convert a chain of layers to a network of another width.

    It has the same functions of the samples, but other parameters. Convolutions and linear layers
    are "layer0", "layer1", .... A convolution's weight is by output, input, height, width, and the
    last images are read in the order channel, height, width. Weights start uniform in +-sqrt(6 /
    fan_in).

    Parameters
    ----------
    model : LayeredModel
        Chain of layers.
    channels : callable
        Function of a number of channels that returns the new number.

    Returns
    -------
    Network
        The network.

    Raises
    ------
    UserError
        If the model has dropout, which a network has not.
    """
    if model.uses_dropout:
        raise UserError(
            f"model.dropout: got {model.dropout:g}, but submodels train without dropout; use "
            "dropout: 0, or a method without submodels"
        )
    first = model.layers[0]
    if first.window is None:
        image = (first.inputs, 1, 1)
    else:
        image = (first.window.channels, first.window.height, first.window.width)
    width, pixels = image[0], 1
    steps: list[plan.Step] = []
    for number, layer in enumerate(model.layers):
        name, inner = f"layer{number}", number > 0
        if layer.window is None:
            last = number == len(model.layers) - 1
            steps.append(plan.Linear(name, width, layer.outputs, pixels, inner, last))
            pixels = 1
        else:
            w = layer.window
            conv = plan.Conv(name, width, layer.outputs, w.kernel, w.stride, w.padding, True, inner)
            steps += [conv, plan.MaxPool(w.pool)] if w.pool > 1 else [conv]
            pixels = w.features
        steps.append(plan.Relu(model.leaky_slope))
        width = layer.outputs
    network = Network(image, plan.replace_widths(steps[:-1], channels))
    network.loss = model.loss
    return network
