"""Trained models as ordinary `torch.nn.Module`s in eval mode.

A module maps [batch, *input_shape] to scores [batch, classes]. A low-rank weight is two thin layers
in a row, one in CP form two (dense) or four (convolution). So the module has the size and speed of
the method's model.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import MODEL
from otafl.core.errors import UserError
from otafl.models.geometry import Window
from otafl.models.layer_steps import Conv, Linear, MaxPool, MeanPool, Norm, Relu, Step, parse_steps
from otafl.models.linear_layer import Layer, parse_layers
from otafl.models.network import EPSILON, Network, to_kernels
from otafl.models.recipes import BASE, PI, Recipe
from otafl.models.transformer_module import TransformerModule
from otafl.user_code import loading

Params = Mapping[str, Tensor]
NamedModules = Iterator[tuple[str, nn.Module]]
Layered = TypeVar("Layered", nn.Linear, nn.Conv2d)


class Sum(nn.Module):
    """Module of body(x) + shortcut(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class Mixture(nn.Module):
    """Module of the log-probabilities of sum_m pi_m h_m(x), for models h_m.

    The buffer log_pi is [M].
    """

    log_pi: Tensor

    def __init__(self, parts: Sequence[nn.Module], log_pi: Tensor) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("log_pi", log_pi)

    def forward(self, x: Tensor) -> Tensor:
        scores = [torch.log_softmax(part(x), -1) for part in self.parts]
        return torch.logsumexp(torch.stack(scores, -1) + self.log_pi, -1)


class WeightedMean(nn.Module):
    """Weighted mean sum_m pi_m h_m(x) of models h_m of values; the buffer log_pi is [M]."""

    log_pi: Tensor

    def __init__(self, parts: Sequence[nn.Module], log_pi: Tensor) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("log_pi", log_pi)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.stack([part(x) for part in self.parts], -1)
        out: Tensor = (scores * self.log_pi.exp()).sum(-1)
        return out


class Mean(nn.Module):
    """Module of the mean of several models' scores."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.parts], -1).mean(-1)


def build_module(recipe: Recipe, params: Params) -> nn.Module:
    """Build the module of one model.

    Parameters
    ----------
    recipe : dict of str to any
        Recipe of the model.
    params : mapping of str to Tensor [*shape]
        Parameters, which are copied.

    Returns
    -------
    torch.nn.Module
        Module in eval mode.

    Raises
    ------
    UserError
        If the recipe gives a reason why the module does not exist.
    """
    if "refused" in recipe:
        raise UserError(recipe["refused"])
    with torch.inference_mode(False), torch.no_grad():
        parts = [_build_single(recipe, one) for one in split_parts(recipe, params)]
        if recipe["together"] == "mixture":
            module: nn.Module = Mixture(parts, torch.log_softmax(params[PI], -1))
        elif recipe["together"] == "weighted_mean":
            module = WeightedMean(parts, torch.log_softmax(params[PI], -1))
        else:
            module = parts[0] if len(parts) == 1 else Mean(parts)
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


def split_parts(recipe: Recipe, params: Params) -> Iterator[Params]:
    """Yield the parameters of each of the combined models."""
    if recipe["flat"] is None:
        yield {name: block for name, block in params.items() if not name.startswith(BASE)}
        return
    shapes, several = recipe["flat"], recipe["together"] == "mean"
    for index, flat in enumerate(params[MODEL].chunk(recipe["parts"])):
        pieces = flat.split([math.prod(shape) for shape in shapes.values()])
        own = {n: p.view(*shapes[n]) for n, p in zip(shapes, pieces, strict=True)}
        other = {n: b for n, b in params.items() if n not in (MODEL, PI)}
        yield own | {n: b[index] if several else b for n, b in other.items()}


def _build_single(recipe: Recipe, params: Params) -> nn.Module:
    """Build the module of one of the combined models."""
    model, shape = recipe["model"], tuple(recipe["input_shape"])
    if model["kind"] == "module":
        return _build_custom(model, params)
    if model["kind"] == "transformer":
        return TransformerModule(model, params)
    if model["kind"] == "network":
        network = Network(tuple(model["image"]), parse_steps(model["steps"]), model["unroll"])
        named = [
            *_build_image_layers(shape, network.image),
            *_build_network(network, network.steps, params),
        ]
    else:
        named = list(
            _build_chain(parse_layers(model), recipe["form"], model["slope"], params, shape)
        )
    return nn.Sequential(OrderedDict(named))


def _build_custom(model: Mapping[str, Any], params: Params) -> nn.Module:
    """Build the user-defined module with the trained parameters."""
    options = {n: tuple(v) if n == "input_shape" else v for n, v in model["options"].items()}
    module = loading.call(model["name"], "model.name", options)
    if not isinstance(module, nn.Module):
        raise UserError(
            f"model.name: '{model['name']}' gives a {type(module).__name__}; expected a "
            "torch.nn.Module class, or a function that returns one"
        )
    own = {_find_state_name(name, module): block for name, block in params.items()}
    buffers = dict(module.named_buffers())
    kept = {n: b for n, b in module.state_dict().items() if n in buffers and n not in own}
    try:
        module.load_state_dict(kept | own)
    except RuntimeError as error:
        raise UserError(
            f"model.name: '{model['name']}' gives a module with other parameters than the trained "
            f"ones ({' '.join(str(error).split())}); use the module of the run"
        ) from error
    return module


def _find_state_name(name: str, module: nn.Module) -> str:
    """Return PyTorch's name of a parameter, or of a statistic of batch normalisation."""
    path, _, last = name.rpartition(".")
    running = {"mean": "running_mean", "variance": "running_var"}.get(last)
    known = dict(module.named_buffers())
    return f"{path}.{running}" if running and f"{path}.{running}" in known else name


def _build_image_layers(shape: tuple[int, ...], image: tuple[int, int, int]) -> NamedModules:
    """Yield layers that reshape samples of any shape to images [channels, height, width]."""
    if shape == image:
        return
    if len(shape) > 1:
        yield "flatten", nn.Flatten()
    yield "image", nn.Unflatten(1, image)


def _build_network(network: Network, steps: Sequence[Step], params: Params) -> NamedModules:
    """Yield the modules of a network's steps."""
    flat = False
    for place, step in enumerate(steps):
        if isinstance(step, Conv | Linear | Norm):
            name = step.name.replace(".", "_")
        else:
            name = f"{type(step).__name__.lower()}{place}"
        if isinstance(step, Linear) and not flat:
            yield "features", nn.Flatten()
            flat = True
        yield name, _build_step(network, step, params, flat)


def _build_step(network: Network, step: Step, params: Params, flat: bool) -> nn.Module:
    """Build the module of a step."""
    if isinstance(step, Conv):
        return _build_conv(network, step, params)
    if isinstance(step, Linear):
        bias = params[f"{step.name}.bias"]
        if step.rank is None:
            return make_linear(params[f"{step.name}.weight"].mT, bias)
        right, left = params[f"{step.name}.right"], params[f"{step.name}.left"]
        return nn.Sequential(make_linear(right), make_linear(left, bias))
    if isinstance(step, Norm):
        return _build_norm(step, params, flat)
    if isinstance(step, Relu):
        return make_activation(step.slope)
    if isinstance(step, MaxPool):
        return nn.MaxPool2d(step.size)
    if isinstance(step, MeanPool):
        return nn.AdaptiveAvgPool2d(1)
    sides = (_build_network(network, side, params) for side in (step.body, step.shortcut))
    body, shortcut = (nn.Sequential(OrderedDict(side)) for side in sides)
    return Sum(body, shortcut)


def _build_conv(network: Network, step: Conv, params: Params) -> nn.Module:
    """Build the module of a convolution, or two for a low-rank one."""
    bias = params[f"{step.name}.bias"] if step.bias else None
    s, p = step.stride, step.padding
    if step.rank is None:
        return make_conv(params[f"{step.name}.weight"], bias, (s, s), (p, p))
    left, right = params[f"{step.name}.left"], params[f"{step.name}.right"]
    first, second = to_kernels(left[None], right[None], step.kernel, network.unroll)
    one, two = ((s, 1), (p, 0)), ((1, s), (0, p))
    if network.unroll == "horizontal_first":
        one, two = two, one
    return nn.Sequential(make_conv(first[0], None, *one), make_conv(second[0], bias, *two))


def _build_norm(step: Norm, params: Params, flat: bool) -> nn.Module:
    """Build the module of a normalisation."""
    weight, bias = params[f"{step.name}.weight"], params[f"{step.name}.bias"]
    module: nn.Module
    if step.groups is not None:
        groups = math.gcd(step.groups, step.channels)
        module = nn.GroupNorm(groups, step.channels, eps=EPSILON, dtype=weight.dtype)
        module.load_state_dict({"weight": weight, "bias": bias})
        return module
    kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
    module = kind(step.channels, eps=EPSILON, dtype=weight.dtype)
    state = {"weight": weight, "bias": bias, "running_mean": params[f"{step.name}.mean"]}
    state["running_var"] = params[f"{step.name}.variance"]
    module.load_state_dict(state | {"num_batches_tracked": torch.tensor(0)})
    return module


def _build_chain(
    layers: Sequence[Layer], form: str, slope: float, params: Params, shape: tuple[int, ...]
) -> NamedModules:
    """Yield the modules of a chain of layers, with images channels first as in PyTorch."""
    front = [layer.window for layer in layers if layer.window is not None]
    if front:
        first = front[0]
        yield from _build_image_layers(shape, (first.channels, first.height, first.width))
    elif len(shape) != 1:
        yield "flatten", nn.Flatten()
    for i, layer in enumerate(layers):
        thin, bias = get_weights(form, i, layer, params)
        if layer.window is not None:
            yield f"conv{i}", _build_windowed_conv(thin, bias, layer.window, form)
            if layer.window.pool > 1:
                yield f"pool{i}", nn.MaxPool2d(layer.window.pool)
        else:
            if i and i == len(front):
                yield "features", nn.Flatten()
                thin[0] = _to_channels_first(thin[0], front[-1])
            yield (
                f"linear{i}",
                _append_module(
                    [make_linear(one) for one in thin[:-1]], make_linear(thin[-1], bias)
                ),
            )
        if i < len(layers) - 1:
            yield f"activation{i}", make_activation(slope)


def get_weights(form: str, i: int, layer: Layer, params: Params) -> tuple[list[Tensor], Tensor]:
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


def _build_windowed_conv(
    thin: Sequence[Tensor], bias: Tensor, window: Window, form: str
) -> nn.Module:
    """Build a convolution whose first matrix has columns in the order height, width, channel.

    Further matrices act on channels.
    """
    k, s, p = window.kernel, window.stride, window.padding
    if form == "cp":
        high, wide, channels, outputs = thin
        rank = len(high)
        return nn.Sequential(
            make_conv(channels[:, :, None, None], None, (1, 1), (0, 0)),
            make_conv(wide[:, None, None, :], None, (1, s), (0, p), rank),
            make_conv(high[:, None, :, None], None, (s, 1), (p, 0), rank),
            make_conv(outputs.mT[:, :, None, None], bias, (1, 1), (0, 0)),
        )
    first = thin[0].unflatten(1, (k, k, window.channels)).permute(0, 3, 1, 2)
    if len(thin) == 1:
        return make_conv(first, bias, (s, s), (p, p))
    second = make_conv(thin[1][:, :, None, None], bias, (1, 1), (0, 0))
    return nn.Sequential(make_conv(first, None, (s, s), (p, p)), second)


def _to_channels_first(weight: Tensor, window: Window) -> Tensor:
    """Reorder a weight [N, H W C] on the last images to [N, C H W]."""
    high, wide = window.pooled
    return weight.unflatten(1, (high, wide, -1)).permute(0, 3, 1, 2).flatten(1)


def _append_module(modules: list[nn.Linear], last: nn.Linear) -> nn.Module:
    """Append a layer, in a sequence if there are others."""
    return nn.Sequential(*modules, last) if modules else last


def make_activation(slope: float) -> nn.Module:
    """Make the activation with a slope below zero."""
    return nn.LeakyReLU(slope) if slope else nn.ReLU()


def make_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Make a linear layer with a weight [outputs, inputs]."""
    outputs, inputs = weight.shape
    return _fill_params(nn.Linear(inputs, outputs, bias is not None, device="meta"), weight, bias)


def make_conv(
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int = 1,
) -> nn.Conv2d:
    """Make a convolution with given parameters.

    Parameters
    ----------
    weight : Tensor [outputs, inputs / groups, height, width]
        Weight, which is copied.
    bias : Tensor [outputs], or None
        Bias.
    stride, padding : tuple of int
        Steps and zeros along height and width.
    groups : int
        Number of groups.

    Returns
    -------
    torch.nn.Conv2d
        The convolution.
    """
    outputs, inputs, *kernel = weight.shape
    module = nn.Conv2d(
        inputs * groups,
        outputs,
        (kernel[0], kernel[1]),
        stride,
        padding,
        groups=groups,
        bias=bias is not None,
        device="meta",  # draws no start, so that torch's global random state stays
    )
    return _fill_params(module, weight, bias)


def _fill_params(module: Layered, weight: Tensor, bias: Tensor | None) -> Layered:
    """Set a layer's parameters to copies."""
    module.weight = nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
    if bias is not None:
        module.bias = nn.Parameter(bias.clone())
    return module
