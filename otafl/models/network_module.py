"""Modules of a trained network of convolutions, normalisation and residual blocks."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from otafl.models.kernel_matrices import to_kernels
from otafl.models.layer_steps import Conv, Linear, MaxPool, MeanPool, Norm, Relu, Step
from otafl.models.network import EPSILON, Network
from otafl.models.torch_layers import (
    NamedModules,
    make_activation,
    make_conv,
    make_image_layers,
    make_linear,
)

Params = Mapping[str, Tensor]


class Sum(nn.Module):
    """Module of body(x) + shortcut(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


def build_network(network: Network, params: Params, shape: tuple[int, ...]) -> NamedModules:
    """Yield the modules of a network for samples of a shape."""
    yield from make_image_layers(shape, network.image)
    yield from _build_steps(network, network.steps, params)


def _build_steps(network: Network, steps: Sequence[Step], params: Params) -> NamedModules:
    """Yield the modules of some steps."""
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
    sides = (_build_steps(network, side, params) for side in (step.body, step.shortcut))
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
