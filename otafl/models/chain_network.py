"""Chains of layers as networks of steps: of another width, or as modules of trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from otafl.core.errors import UserError
from otafl.models.geometry import Window
from otafl.models.layer_steps import Conv, Linear, MaxPool, Relu
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import Layer
from otafl.models.network import Network
from otafl.models.step_contract import Channels, Image, Part, Step
from otafl.models.step_lists import build_modules


def to_network(model: LayeredModel, channels: Channels) -> Network:
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
    network = Network(*to_steps(model.layers, model.leaky_slope)).build_network(channels)
    network.loss = model.loss
    return network


def to_steps(layers: Sequence[Layer], slope: float) -> tuple[Image, tuple[Step, ...]]:
    """Convert a chain of layers, with an activation of this slope below zero, to image and steps.

    Convolutions and linear layers are "layer0", "layer1", ....
    """
    first = layers[0]
    image = (first.inputs, 1, 1)
    if first.window is not None:
        image = (first.window.channels, first.window.height, first.window.width)
    width, pixels = image[0], 1
    steps: list[Step] = []
    for number, layer in enumerate(layers):
        name, inner, w = f"layer{number}", number > 0, layer.window
        if w is None:
            last = number == len(layers) - 1
            steps.append(Linear(name, width, layer.outputs, pixels, inner, last))
            pixels = 1
        else:
            conv = Conv(name, width, layer.outputs, w.kernel, w.stride, w.padding, True, inner)
            steps += [conv, MaxPool(w.pool)] if w.pool > 1 else [conv]
            pixels = w.features
        steps.append(Relu(slope))
        width = layer.outputs
    return image, tuple(steps[:-1])


def build_chain(
    layers: Sequence[Layer], form: str, slope: float, params: Mapping[str, Tensor]
) -> nn.Sequential:
    """Build the module of a trained chain of layers, in a form of weights as in `recipes`."""
    parts, biases = {}, {}
    for number, layer in enumerate(layers):
        matrices, biases[f"layer{number}.bias"] = _get_weights(form, number, layer, params)
        before = layers[number - 1].window if number else None
        if layer.window is not None:
            parts[f"layer{number}"] = _list_kernels(matrices, layer.window, form)
            continue
        if before is not None:  # from the order height, width, channel
            by_pixel = matrices[0].unflatten(1, (*before.pooled, -1))
            matrices[0] = by_pixel.permute(0, 3, 1, 2).flatten(1)
        parts[f"layer{number}"] = [Part(one) for one in matrices]
    return build_modules(to_steps(layers, slope)[1], biases, parts=parts)


def _get_weights(
    form: str, i: int, layer: Layer, params: Mapping[str, Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Return the matrices of a layer's weight, and its bias.

    Parameters
    ----------
    form : str
        Representation of the weights.
    i : int
        Index of the layer.
    layer : Layer
        Layer.
    params : mapping of str to Tensor
        Parameters.

    Returns
    -------
    list of Tensor [outputs, inputs]
        Matrices that act one after the other; of a convolution in CP form the factors [R, I_n].
    Tensor [outputs]
        Bias.
    """
    if form == "dense":
        return [params[layer.weight].mT], params[layer.bias]
    if form == "cp":
        modes = 2 if layer.window is None else 4
        factors = [params[f"{layer.weight}.A{n}"] for n in range(1, modes + 1)]
        return factors if modes == 4 else [factors[0], factors[1].mT], params[layer.bias]
    u, s, v = (params[f"{name}{i}"] for name in "usv")
    if form == "low_rank_with_bias":
        u, bias = u[:-1], (u[-1] * s) @ v.mT
    else:
        bias = params[f"b{i}"]
    root = s.sqrt()  # to each side, which keeps both at one scale
    return [(u * root).mT, v * root], bias


def _list_kernels(matrices: Sequence[Tensor], window: Window, form: str) -> list[Part]:
    """List the kernels of a convolution.

    The columns of its first matrix are in the order height, width, channel; further matrices act on
    channels.
    """
    k, s, p = window.kernel, window.stride, window.padding
    if form == "cp":
        high, wide, channels, outputs = matrices
        rank = len(high)
        return [
            Part(channels[:, :, None, None]),
            Part(wide[:, None, None, :], (1, s), (0, p), rank),
            Part(high[:, None, :, None], (s, 1), (p, 0), rank),
            Part(outputs.mT[:, :, None, None]),
        ]
    first = matrices[0].unflatten(1, (k, k, window.channels)).permute(0, 3, 1, 2)
    return [Part(first, (s, s), (p, p)), *(Part(one[:, :, None, None]) for one in matrices[1:])]
