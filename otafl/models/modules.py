"""Trained models as ordinary `torch.nn.Module`s in eval mode.

A module maps [batch, *input_shape] to scores [batch, classes]. A low-rank weight is two thin layers
in a row, one in CP form two (dense) or four (convolution). So the module has the size and speed of
the method's model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import MODEL, Tensors
from otafl.core.errors import UserError
from otafl.models.base import Model, unflatten
from otafl.models.layer_contract import Image, Layer, Part
from otafl.models.layer_lists import add_reshaping, build_modules, name_layers
from otafl.models.layers import Conv, WeightedLayer

BASE = "base."
"""Beginning of the names of weights without adapters, which no module needs."""


class Recipe(TypedDict):
    """How the module of an evaluated model is made, which is stored with its parameters.

    name : name of the model in the scenario.
    input_shape : shape of a sample.
    classes : number of classes.
    together : combination of several models whose parameters lie side by side: "mixture" or, of
        values, "weighted_mean" (FedEM), "mean" of scores (Split-Mix), or None.
    refused : reason why a torch module cannot be made, or None.
    """

    name: str
    input_shape: list[int]
    classes: int
    together: str | None
    refused: str | None


PI = "mixing"
"""Name of the tensor of a mixture's weights, [n, M], their logarithm up to a constant."""

Params = Mapping[str, Tensor]


def select_params(params: Tensors) -> Tensors:
    """Return those of a view's parameters that its module needs."""
    if detect_form(params) == "dense":
        return params
    return {name: block for name, block in params.items() if name != "weight"}


class Mixture(nn.Module):
    """Mixture of models h_m with weights pi_m.

    Its scores are the log-probabilities of sum_m pi_m h_m(x), or of values their weighted mean. The
    buffer log_pi is [M].
    """

    log_pi: Tensor

    def __init__(self, parts: Sequence[nn.Module], log_pi: Tensor, of_values: bool = False) -> None:
        super().__init__()
        self.parts, self.of_values = nn.ModuleList(parts), of_values
        self.register_buffer("log_pi", log_pi)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.stack([part(x) for part in self.parts], -1)
        if self.of_values:
            return (scores * self.log_pi.exp()).sum(-1)
        return torch.logsumexp(torch.log_softmax(scores, -2) + self.log_pi, -1)


class Mean(nn.Module):
    """Module of the mean of several models' scores."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.parts], -1).mean(-1)


def build_module(model: Model, recipe: Recipe, params: Params) -> nn.Module:
    """Build the module of an evaluated model.

    Parameters
    ----------
    model : Model
        Model of the parameters; one of several that are combined.
    recipe : Recipe
        Recipe of the module.
    params : mapping of str to Tensor [*shape]
        Parameters, which are copied.

    Returns
    -------
    torch.nn.Module
        Module in eval mode.

    Raises
    ------
    UserError
        If there is no such module.
    """
    if recipe["refused"] is not None:
        raise UserError(recipe["refused"])
    parts, shape = [], tuple(recipe["input_shape"])
    with torch.inference_mode(False), torch.no_grad():
        for one in split_parts(model, recipe, params):
            part = model.build_module(one, shape)
            if part is None:
                raise UserError(
                    f"model.name: '{recipe['name']}' cannot be exported as a plain PyTorch module; "
                    "use mlp, cnn, resnet, vgg, conv_net, transformer, softmax_regression or your "
                    "own torch.nn.Module"
                )
            parts.append(part)
        module = parts[0] if len(parts) == 1 else Mean(parts)
        if recipe["together"] in ("mixture", "weighted_mean"):
            of_values = recipe["together"] == "weighted_mean"
            module = Mixture(parts, torch.log_softmax(params[PI], -1), of_values)
    return module.eval()


def count_macs(module: nn.Module, x: Tensor) -> int:
    """Count the MACs of convolutions and linear layers.

    Parameters
    ----------
    module : torch.nn.Module
        Module.
    x : Tensor [1, *input]
        One sample.

    Returns
    -------
    int
        Multiply-accumulate operations.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(x)
    return int(counter.get_total_flops()) // 2


def count_numbers(module: nn.Module) -> int:
    """Count the real numbers of a stored model: parameters, and statistics of normalisations."""
    every = [*module.parameters(), *module.buffers()]
    return sum(one.numel() for one in every if one.is_floating_point())


def split_parts(model: Model, recipe: Recipe, params: Params) -> Iterator[Params]:
    """Yield the parameters of each of the combined models."""
    if MODEL not in params:
        yield {name: block for name, block in params.items() if not name.startswith(BASE)}
        return
    several, count = recipe["together"] == "mean", len(params[MODEL]) // model.num_params
    for index, flat in enumerate(params[MODEL].chunk(count)):
        own = {name: one[0] for name, one in unflatten(flat[None], model.shapes).items()}
        other = {n: b for n, b in params.items() if n not in (MODEL, PI)}
        yield own | {n: b[index] if several else b for n, b in other.items()}


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
        name = f"layer{layer.name}"
        matrices, biases[f"{name}.bias"] = _get_weights(form, number, layer, params)
        if isinstance(layer, Conv):
            parts[name] = _list_kernels(matrices, layer, form)
            continue
        # from the order height, width, channel of the last images
        by_pixel = matrices[0].unflatten(1, (layer.repeat, -1))
        matrices[0] = by_pixel.transpose(1, 2).flatten(1)
        parts[name] = [Part(one) for one in matrices]
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
