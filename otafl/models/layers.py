"""Layers of a network: their parameters, forward pass, operations and `torch.nn.Module`.

The images of n rows are side by side, [B, n C, H, W], and so are vectors after a linear layer,
[B, n M]. A convolution of all rows is one grouped convolution. Axes of a parameter that follow
hidden channels can be narrowed (`Axis`), and weights can be low-rank.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from otafl.core.errors import UserError
from otafl.models.base import LOSS, NORMALISING
from otafl.models.layer_contract import (
    Axis,
    Channels,
    Costs,
    Image,
    Layer,
    Parameter,
    Part,
    Pass,
    Unroll,
    make_sequence,
    to_kernels,
)

EPSILON = 1e-5
"""Number that normalisation adds to a variance, as in PyTorch."""


@dataclass(frozen=True)
class WeightedLayer(Layer):
    """Layer with a weight: a convolution, or a linear layer.

    Parameters
    ----------
    name : str
        Name of the layer.
    channels, outputs : int
        Numbers of channels.
    cut : bool
        Whether its inputs are hidden channels, of which a narrower network has fewer, not the
        image's.
    rank : int, optional
        Rank of the weight; dense if not given.
    numbered : bool
        Whether the name is a number N and the parameters are "weightN" and "biasN" of a
        `LayeredModel`.
    """

    name: str
    channels: int
    outputs: int
    kernel: int = field(default=1, init=False)
    repeat: int = field(default=1, init=False)
    has_bias: bool = field(default=True, init=False)
    last: bool = field(default=False, init=False)
    cut: bool = field(default=True, kw_only=True)
    rank: int | None = field(default=None, kw_only=True)
    numbered: bool = field(default=False, kw_only=True)

    @property
    def weight(self) -> str:
        """The name of the weight."""
        return f"weight{self.name}" if self.numbered else f"{self.name}.weight"

    @property
    def bias(self) -> str:
        """The name of the bias."""
        return f"bias{self.name}" if self.numbered else f"{self.name}.bias"

    @property
    def inputs(self) -> int:
        """The number of inputs of an output."""
        return self.kernel**2 * self.channels * self.repeat

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a dense weight."""
        return self.inputs, self.outputs

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes I_1, ..., I_N of the matrix [inputs, outputs], 2 if linear, else 4."""
        return self.inputs, self.outputs

    def list_parameters(self) -> Iterator[Parameter]:
        into = Axis(self.channels, self.repeat) if self.cut else None
        out = None if self.last else Axis(self.outputs)
        bound = ((1.0 if self.last else 6.0) / self.inputs) ** 0.5
        if self.rank is None:
            axes = (into, out) if len(self.shape) == 2 else (out, into, None, None)
            yield Parameter(self.weight, self.shape, axes, 0.0, bound)
        else:
            # No axes, since a network is reduced in width or in rank, not in both. The product has
            # the dense weight's variance: rank (b^2 / 3)^2 = bound^2 / 3 for factors in +-b.
            rows, columns = self.outputs * self.kernel, self.inputs // self.kernel
            of_factors = (3.0 * bound**2 / self.rank) ** 0.25
            for name, shape in (("left", (rows, self.rank)), ("right", (self.rank, columns))):
                yield Parameter(f"{self.name}.{name}", shape, (None, None), 0.0, of_factors)
        if self.has_bias:
            yield Parameter(self.bias, (self.outputs,), (out,))

    def narrow(self, channels: Channels) -> WeightedLayer:
        inputs = channels(self.channels) if self.cut else self.channels
        outputs = self.outputs if self.last else channels(self.outputs)
        return replace(self, channels=inputs, outputs=outputs)

    @abstractmethod
    def list_parts(self, params: Mapping[str, Tensor], unroll: Unroll) -> list[Part]:
        """List what acts in place of the weight, one after the other, for n rows."""

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        own = f"{self.name}."
        row = {name: block[None] for name, block in params.items() if name.startswith(own)}
        parts = [one._replace(weight=one.weight[0]) for one in self.list_parts(row, unroll)]
        return make_sequence(parts, params.get(self.bias))


@dataclass(frozen=True)
class Conv(WeightedLayer):
    """Convolution with a weight [outputs, channels, kernel, kernel].

    The weight of a numbered one is a matrix [kernel kernel channels, outputs], with a row for each
    number of the window, in the order height, width, channel.

    Parameters
    ----------
    kernel, stride, padding : int
        Side and step of the window, and zeros around the image, in pixels.
    has_bias : bool
        Whether it has a bias.
    """

    kernel: int = 3
    stride: int = 1
    padding: int = 1
    has_bias: bool = field(default=False, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        if self.numbered:
            return super().shape
        return self.outputs, self.channels, self.kernel, self.kernel

    @property
    def modes(self) -> tuple[int, ...]:
        return self.kernel, self.kernel, self.channels, self.outputs

    def list_parts(self, params: Mapping[str, Tensor], unroll: Unroll) -> list[Part]:
        s, p = self.stride, self.padding
        if self.rank is None:
            return [Part(params[self.weight], (s, s), (p, p))]
        factors = params[f"{self.name}.left"], params[f"{self.name}.right"]
        first, second = to_kernels(*factors, self.kernel, unroll)
        windows = [((s, 1), (p, 0)), ((1, s), (0, p))]
        if unroll == "horizontal_first":
            windows.reverse()
        # contiguous: double precision on a processor takes no other kernels
        return [Part(first.contiguous(), *windows[0]), Part(second.contiguous(), *windows[1])]

    def run(self, x: Tensor, now: Pass) -> Tensor:
        *front, last = self.list_parts(now.params, now.unroll)
        bias = now.params[self.bias].flatten() if self.has_bias else None
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
        after, elementwise = (self.outputs, high, wide), self.has_bias * self.outputs * high * wide
        if self.rank is None:
            return Costs(after, (self.outputs * c * k * k * high * wide,), 0, elementwise)
        # the first of the two keeps one side of the image
        between = self.rank * (high * w if unroll == "vertical_first" else h * wide)
        products = between * c * k, self.outputs * self.rank * k * high * wide
        return Costs(after, products, 0, elementwise, between)


@dataclass(frozen=True)
class Linear(WeightedLayer):
    """Linear layer y = x W + b with W [channels * repeat, outputs].

    Parameters
    ----------
    repeat : int
        Pixels of each input channel, of a flattened image.
    last : bool
        Whether its outputs are the classes.
    """

    repeat: int = 1
    last: bool = field(default=False, kw_only=True)

    def list_parts(self, params: Mapping[str, Tensor], unroll: Unroll) -> list[Part]:
        if self.rank is None:
            return [Part(params[self.weight].mT)]
        return [Part(params[f"{self.name}.{name}"]) for name in ("right", "left")]

    def run(self, x: Tensor, now: Pass) -> Tensor:
        x = x.flatten(1).unflatten(1, (now.num_rows, -1)).transpose(0, 1)  # [n, B, M]
        *front, last = self.list_parts(now.params, now.unroll)
        for part in front:
            x = torch.bmm(x, part.weight.mT)
        y = torch.baddbmm(now.params[self.bias][:, None], x, last.weight.mT)
        return y.transpose(0, 1).flatten(1)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        m, n, rank = math.prod(image), self.outputs, self.rank
        products = (m * n,) if rank is None else (m * rank, rank * n)
        return Costs((n, 1, 1), products, 0, ((1 + LOSS) if self.last else 1) * n)


@dataclass(frozen=True)
class Norm(Layer):
    """Batch or group normalisation with learnt scale and shift.

    Parameters
    ----------
    name : str
        Name of the layer.
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
class Relu(Layer):
    """ReLU, or leaky ReLU with a slope below zero."""

    slope: float = 0.0

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return functional.leaky_relu(x, self.slope) if self.slope else functional.relu(x)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        return Costs(image, elementwise=math.prod(image))

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return nn.LeakyReLU(self.slope) if self.slope else nn.ReLU()


@dataclass(frozen=True)
class MaxPool(Layer):
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
class MeanPool(Layer):
    """Mean over all pixels."""

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return x.mean((2, 3))

    def count(self, image: Image, unroll: Unroll) -> Costs:
        return Costs((image[0], 1, 1), elementwise=math.prod(image))

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return nn.AdaptiveAvgPool2d(1)


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
