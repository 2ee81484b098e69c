"""Modules of trained chains of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from otafl.models.layer_contract import Image, Layer, Part
from otafl.models.layer_lists import add_reshaping, build_modules, name_layers
from otafl.models.layers import Conv, WeightedLayer

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
    chain: Sequence[Layer],
    image: Image,
    params: Mapping[str, Tensor],
    input_shape: tuple[int, ...],
) -> nn.Sequential:
    """Build the module of a trained chain of layers, with weights in any form."""
    form, parts, biases = detect_form(params), {}, {}
    for number, layer in enumerate(one for one in chain if isinstance(one, WeightedLayer)):
        matrices, biases[f"layer{number}.bias"] = _get_weights(form, number, layer, params)
        if isinstance(layer, Conv):
            parts[f"layer{number}"] = _list_kernels(matrices, layer, form)
            continue
        # from the order height, width, channel of the last images
        by_pixel = matrices[0].unflatten(1, (layer.repeat, -1))
        matrices[0] = by_pixel.transpose(1, 2).flatten(1)
        parts[f"layer{number}"] = [Part(one) for one in matrices]
    layers = name_layers(chain)
    return add_reshaping(build_modules(layers, biases, parts=parts), layers, image, input_shape)


def _get_weights(
    form: Form, i: int, layer: WeightedLayer, params: Mapping[str, Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Return the matrices of a layer's weight, and its bias.

    Parameters
    ----------
    form : Form
        Representation of the weights.
    i : int
        Index of the layer.
    layer : WeightedLayer
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
        factors = [params[f"{layer.weight}.A{n + 1}"] for n in range(len(layer.modes))]
        matrices = [factors[0], factors[1].mT] if len(factors) == 2 else factors
        return matrices, params[layer.bias]
    u, s, v = (params[f"{name}{i}"] for name in "usv")
    if form == "low_rank_with_bias":
        u, bias = u[:-1], (u[-1] * s) @ v.mT
    else:
        bias = params[f"b{i}"]
    root = s.sqrt()  # to each side, which keeps both at one scale
    return [(u * root).mT, v * root], bias


def _list_kernels(matrices: Sequence[Tensor], layer: Conv, form: Form) -> list[Part]:
    """List the kernels of a convolution.

    The columns of its first matrix are in the order height, width, channel; further matrices act on
    channels.
    """
    k, s, p = layer.kernel, layer.stride, layer.padding
    if form == "cp":
        high, wide, channels, outputs = matrices
        rank = len(high)
        return [
            Part(channels[:, :, None, None]),
            Part(wide[:, None, None, :], (1, s), (0, p), rank),
            Part(high[:, None, :, None], (s, 1), (p, 0), rank),
            Part(outputs.mT[:, :, None, None]),
        ]
    first = matrices[0].unflatten(1, (k, k, layer.channels)).permute(0, 3, 1, 2)
    return [Part(first, (s, s), (p, p)), *(Part(one[:, :, None, None]) for one in matrices[1:])]
