"""Layers of a network: their parameters, forward pass, operations and `torch.nn.Module`.

The images of n rows are side by side, [B, n C, H, W], and so are vectors after a linear layer,
[B, n M]. A convolution of all rows is one grouped convolution. Axes of a parameter that follow
hidden channels can be narrowed (`Axis`), and weights can be low-rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.errors import UserError
from otafl.models.base import LOSS, NORMALISING
from otafl.models.step_contract import (
    Axis,
    Channels,
    Costs,
    Image,
    Parameter,
    Part,
    Pass,
    Step,
    Unroll,
    make_activation,
    make_sequence,
    to_kernels,
)

EPSILON = 1e-5
"""Number that normalisation adds to a variance, as in PyTorch."""


@dataclass(frozen=True)
class Conv(Step):
    """Convolution with a weight [outputs, inputs, kernel, kernel].

    Parameters
    ----------
    name : str
        Name of the step.
    inputs, outputs : int
        Numbers of channels.
    kernel, stride, padding : int
        Side and step of the window, and zeros around the image, in pixels.
    bias : bool
        Whether it has a bias.
    cut : bool
        Whether its inputs are hidden channels, of which a narrower network has fewer, not the
        image's.
    rank : int, optional
        Rank of the weight; dense if not given.
    """

    name: str
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    bias: bool = False
    cut: bool = True
    rank: int | None = None

    def list_parameters(self) -> Iterator[Parameter]:
        into, out, k = Axis(self.inputs) if self.cut else None, Axis(self.outputs), self.kernel
        shape, bound = (self.outputs, self.inputs, k, k), (6.0 / (self.inputs * k**2)) ** 0.5
        if self.rank is None:
            yield Parameter(f"{self.name}.weight", shape, (out, into, None, None), 0.0, bound)
        else:
            yield from _list_factors(self.name, self.outputs * k, self.inputs * k, self.rank, bound)
        if self.bias:
            yield Parameter(f"{self.name}.bias", (self.outputs,), (out,))

    def narrow(self, channels: Channels) -> Conv:
        inputs = channels(self.inputs) if self.cut else self.inputs
        return replace(self, inputs=inputs, outputs=channels(self.outputs))

    def list_parts(self, params: Mapping[str, Tensor], unroll: Unroll) -> list[Part]:
        """List the kernels [n, out, in, k1, k2] that act one after the other, with their steps."""
        s, p = self.stride, self.padding
        if self.rank is None:
            return [Part(params[f"{self.name}.weight"], (s, s), (p, p))]
        factors = params[f"{self.name}.left"], params[f"{self.name}.right"]
        first, second = to_kernels(*factors, self.kernel, unroll)
        windows = [((s, 1), (p, 0)), ((1, s), (0, p))]
        if unroll == "horizontal_first":
            windows.reverse()
        # contiguous: double precision on a processor takes no other kernels
        return [Part(first.contiguous(), *windows[0]), Part(second.contiguous(), *windows[1])]

    def run(self, x: Tensor, now: Pass) -> Tensor:
        *front, last = self.list_parts(now.params, now.unroll)
        bias = now.params[f"{self.name}.bias"].flatten() if self.bias else None
        for part, own_bias in [*((one, None) for one in front), (last, bias)]:
            kernel = part.weight.flatten(0, 1)
            x = functional.conv2d(
                x, kernel, own_bias, part.stride, part.padding, groups=now.num_rows
            )
        return x / now.scale if now.scale != 1.0 else x

    def count(self, image: Image, unroll: Unroll) -> Costs:
        c, h, w = image
        k, s, p = self.kernel, self.stride, self.padding
        high, wide = (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1
        after, elementwise = (self.outputs, high, wide), self.bias * self.outputs * high * wide
        if self.rank is None:
            return Costs(after, (self.outputs * c * k * k * high * wide,), 0, elementwise)
        # the first of the two keeps one side of the image
        between = self.rank * (high * w if unroll == "vertical_first" else h * wide)
        products = between * c * k, self.outputs * self.rank * k * high * wide
        return Costs(after, products, 0, elementwise, between)

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        own = f"{self.name}."
        row = {name: block[None] for name, block in params.items() if name.startswith(own)}
        parts = [one._replace(weight=one.weight[0]) for one in self.list_parts(row, unroll)]
        return make_sequence(parts, params.get(f"{self.name}.bias"))


@dataclass(frozen=True)
class Linear(Step):
    """Linear layer y = x W + b with W [inputs * repeat, outputs].

    Parameters
    ----------
    name : str
        Name of the step.
    inputs, outputs : int
        Numbers of channels.
    repeat : int
        Pixels of each input channel, of a flattened image.
    cut : bool
        Whether its inputs are hidden channels.
    last : bool
        Whether its outputs are the classes.
    rank : int, optional
        Rank of the weight; dense if not given.
    """

    name: str
    inputs: int
    outputs: int
    repeat: int = 1
    cut: bool = True
    last: bool = False
    rank: int | None = None

    def list_parameters(self) -> Iterator[Parameter]:
        into = Axis(self.inputs, self.repeat) if self.cut else None
        out = None if self.last else Axis(self.outputs)
        width = self.inputs * self.repeat
        bound = ((1.0 if self.last else 6.0) / width) ** 0.5
        if self.rank is None:
            shape = width, self.outputs
            yield Parameter(f"{self.name}.weight", shape, (into, out), 0.0, bound)
        else:
            yield from _list_factors(self.name, self.outputs, width, self.rank, bound)
        yield Parameter(f"{self.name}.bias", (self.outputs,), (out,))

    def narrow(self, channels: Channels) -> Linear:
        inputs = channels(self.inputs) if self.cut else self.inputs
        return replace(
            self, inputs=inputs, outputs=self.outputs if self.last else channels(self.outputs)
        )

    def run(self, x: Tensor, now: Pass) -> Tensor:
        x = x.flatten(1).unflatten(1, (now.num_rows, -1)).transpose(0, 1)  # [n, B, M]
        weight = now.params.get(f"{self.name}.weight")
        if weight is None:
            x = torch.bmm(x, now.params[f"{self.name}.right"].mT)
            weight = now.params[f"{self.name}.left"].mT
        y = torch.baddbmm(now.params[f"{self.name}.bias"][:, None], x, weight)
        return y.transpose(0, 1).flatten(1)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        m, n, rank = math.prod(image), self.outputs, self.rank
        products = (m * n,) if rank is None else (m * rank, rank * n)
        return Costs((n, 1, 1), products, 0, ((1 + LOSS) if self.last else 1) * n)

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        names = ("weight",) if self.rank is None else ("right", "left")
        weights = [params[f"{self.name}.{name}"] for name in names]
        parts = [Part(one.mT if self.rank is None else one) for one in weights]
        return make_sequence(parts, params[f"{self.name}.bias"])


@dataclass(frozen=True)
class Norm(Step):
    """Batch or group normalisation with learnt scale and shift.

    Parameters
    ----------
    name : str
        Name of the step.
    channels : int
        Number of channels.
    groups : int, optional
        Groups of channels, of which gcd(groups, channels) are used; batch normalisation if not
        given.
    """

    name: str
    channels: int
    groups: int | None = None

    def list_parameters(self) -> Iterator[Parameter]:
        shape, axes = (self.channels,), (Axis(self.channels),)
        yield Parameter(f"{self.name}.weight", shape, axes, 1.0)
        yield Parameter(f"{self.name}.bias", shape, axes)

    def narrow(self, channels: Channels) -> Norm:
        return replace(self, channels=channels(self.channels))

    def run(self, x: Tensor, now: Pass) -> Tensor:
        n = now.num_rows
        weight, bias = (now.params[f"{self.name}.{one}"].flatten() for one in ("weight", "bias"))
        if self.groups is not None:
            groups = n * math.gcd(self.groups, self.channels)
            return functional.group_norm(x, groups, weight, bias, EPSILON)
        mean, variance = (f"{self.name}.{one}" for one in ("mean", "variance"))
        if now.training:
            x, weight = _prepare_minibatch(x, weight, now)
        elif now.found is not None:
            of_x = torch.var_mean(x, (0, 2, 3) if x.dim() == 4 else (0,))
            now.found[variance], now.found[mean] = (one.view(n, -1) for one in of_x)
        elif mean in now.params:
            known = now.params[mean].flatten(), now.params[variance].flatten()
            return functional.batch_norm(x, *known, weight, bias, eps=EPSILON)
        return functional.batch_norm(x, None, None, weight, bias, training=True, eps=EPSILON)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        return Costs(image, elementwise=NORMALISING * math.prod(image))

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        state = {one: params[f"{self.name}.{one}"] for one in ("weight", "bias")}
        dtype = state["weight"].dtype
        module: nn.Module
        if self.groups is not None:
            groups = math.gcd(self.groups, self.channels)
            module = nn.GroupNorm(groups, self.channels, eps=EPSILON, dtype=dtype)
        else:
            kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
            module = kind(self.channels, eps=EPSILON, dtype=dtype)
            state["running_mean"] = params[f"{self.name}.mean"]
            state["running_var"] = params[f"{self.name}.variance"]
            state["num_batches_tracked"] = torch.tensor(0)
        module.load_state_dict(state)
        return module


@dataclass(frozen=True)
class Relu(Step):
    """ReLU, or leaky ReLU with a slope below zero."""

    slope: float = 0.0

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return functional.leaky_relu(x, self.slope) if self.slope else functional.relu(x)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        return Costs(image, elementwise=math.prod(image))

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return make_activation(self.slope)


@dataclass(frozen=True)
class MaxPool(Step):
    """Max-pooling of windows of size x size pixels; a remainder at the far edge is dropped."""

    size: int

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return functional.max_pool2d(x, self.size)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        c, h, w = image
        return Costs((c, h // self.size, w // self.size), elementwise=c * h * w)

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return nn.MaxPool2d(self.size)


@dataclass(frozen=True)
class MeanPool(Step):
    """Mean over all pixels."""

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return x.mean((2, 3))

    def count(self, image: Image, unroll: Unroll) -> Costs:
        return Costs((image[0], 1, 1), elementwise=math.prod(image))

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return nn.AdaptiveAvgPool2d(1)


def _list_factors(
    name: str, outputs: int, inputs: int, rank: int, bound: float
) -> Iterator[Parameter]:
    """List the factors of a weight [outputs, inputs] that starts uniform in +-bound if dense.

    They have no axes, because a network is reduced in width or in rank, not in both. Their product
    has the variance of the dense weight: rank (b^2 / 3)^2 = bound^2 / 3 for factors in +-b.
    """
    of_factors = (3.0 * bound**2 / rank) ** 0.25
    yield Parameter(f"{name}.left", (outputs, rank), (None, None), 0.0, of_factors)
    yield Parameter(f"{name}.right", (rank, inputs), (None, None), 0.0, of_factors)


def _prepare_minibatch(x: Tensor, weight: Tensor, now: Pass) -> tuple[Tensor, Tensor]:
    """Prepare a minibatch [B, n C, ..] and the scale [n C] for a normalisation in training.

    Samples without padding are centred, and scaled so that the whole batch has their variance.
    """
    if x.numel() == x.shape[1]:
        raise UserError(
            "training.batch_size: batch normalisation of a single sample with one pixel gives "
            "0 for any sample; use at least 2, or model.norm: group"
        )
    if now.present is None:
        return x, weight
    present = now.present.T.to(x.dtype).repeat_interleave(x.shape[1] // now.num_rows, 1)
    count = present.sum(0).clamp_min(1.0)
    unit = (count / len(x)).sqrt()
    own = x if x.dim() == 2 else x.mean((2, 3))
    mean = (own * present).sum(0) / count
    side = (..., *[None] * (x.dim() - 2))
    return (x - mean[side]) * (present / unit)[side], weight * unit
