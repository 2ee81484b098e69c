"""Chains of layers as networks of steps: of another width, or as modules of trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from otafl.models.layer_steps import Conv, Linear, MaxPool, Relu
from otafl.models.linear_layer import Layer, Window
from otafl.models.step_contract import Image, Part, Step
from otafl.models.step_lists import add_reshaping, build_modules


def to_steps(layers: Sequence[Layer], slope: float) -> tuple[Image, tuple[Step, ...]]:
    """Convert a chain of layers, with an activation of this slope below zero, to image and steps.

    Convolutions and linear layers are "layer0", "layer1", .... A convolution's weight is by output,
    input, height, width, and the last images are read in the order channel, height, width.
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


Form = Literal["dense", "low_rank", "low_rank_with_bias", "cp"]
"""Representation of the weights of a chain: dense; u, s, v, b of FedRLR; those with the bias as the
last row of u of FedRLR+; or TDPFed's factors."""


def detect_form(params: Mapping[str, Tensor]) -> Form:
    """Detect the representation of weights by the names of parameters."""
    if any(name.endswith(".A1") for name in params):
        return "cp"
    if not {"u0", "s0", "v0"} <= params.keys():
        return "dense"
    return "low_rank" if "b0" in params else "low_rank_with_bias"


def build_chain(
    layers: Sequence[Layer],
    slope: float,
    params: Mapping[str, Tensor],
    input_shape: tuple[int, ...],
) -> nn.Sequential:
    """Build the module of a trained chain of layers, with weights in any form."""
    form, parts, biases = detect_form(params), {}, {}
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
    image, steps = to_steps(layers, slope)
    return add_reshaping(build_modules(steps, biases, parts=parts), steps, image, input_shape)


def _get_weights(
    form: Form, i: int, layer: Layer, params: Mapping[str, Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Return the matrices of a layer's weight, and its bias.

    Parameters
    ----------
    form : Form
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


def _list_kernels(matrices: Sequence[Tensor], window: Window, form: Form) -> list[Part]:
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
