"""Steps of a network and their parameters.

Axes of a parameter that follow hidden channels can be narrowed (`Axis`), and weights can be
low-rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

Unroll = Literal["vertical_first", "horizontal_first"]
"""Order of the windows of a low-rank convolution."""
Image = tuple[int, int, int]
"""Channels, height and width of an image."""
Channels = Callable[[int], int]
"""Function of a layer's number of channels that returns how many a narrower network has."""


class Axis(NamedTuple):
    """Axis of a parameter that follows a layer's channels.

    Parameters
    ----------
    channels : int
        Number of channels.
    repeat : int
        Entries of each channel, the pixels of a flattened image.
    """

    channels: int
    repeat: int = 1


@dataclass(frozen=True)
class Conv:
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


@dataclass(frozen=True)
class Linear:
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


@dataclass(frozen=True)
class Norm:
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


@dataclass(frozen=True)
class Relu:
    """ReLU, or leaky ReLU with a slope below zero."""

    slope: float = 0.0


@dataclass(frozen=True)
class MaxPool:
    """Max-pooling of windows of size x size pixels; a remainder at the far edge is dropped."""

    size: int


@dataclass(frozen=True)
class MeanPool:
    """Mean over all pixels."""


@dataclass(frozen=True)
class Residual:
    """Residual block, body(x) + shortcut(x); an empty shortcut is x itself."""

    body: tuple[Step, ...]
    shortcut: tuple[Step, ...] = ()


Step = Conv | Linear | Norm | Relu | MaxPool | MeanPool | Residual
"""A step of a network."""
KINDS: dict[str, type[Any]] = {one.__name__: one for one in get_args(Step)}
"""Classes of the steps by name."""


def describe(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return steps as plain data for `parse_steps`."""
    out: list[dict[str, Any]] = []
    for step in steps:
        fields: dict[str, Any]
        if isinstance(step, Residual):
            fields = {"body": describe(step.body), "shortcut": describe(step.shortcut)}
        else:
            fields = asdict(step)
        out.append({"step": type(step).__name__} | fields)
    return out


def parse_steps(descriptions: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Make steps from the result of `describe`."""
    out: list[Step] = []
    for one in descriptions:
        fields = {name: value for name, value in one.items() if name != "step"}
        if one["step"] == "Residual":
            fields = {name: parse_steps(inner) for name, inner in fields.items()}
        out.append(KINDS[one["step"]](**fields))
    return tuple(out)


def iterate_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield all steps, those of residual blocks in their position, body first."""
    for step in steps:
        if isinstance(step, Residual):
            yield from iterate_steps(step.body)
            yield from iterate_steps(step.shortcut)
        else:
            yield step


def map_steps(steps: Sequence[Step], change: Callable[[Step], Step]) -> tuple[Step, ...]:
    """Return the steps after a change of each, including those of residual blocks."""
    return tuple(
        Residual(map_steps(step.body, change), map_steps(step.shortcut, change))
        if isinstance(step, Residual)
        else change(step)
        for step in steps
    )


def replace_ranks(steps: Sequence[Step], ranks: Mapping[str, int]) -> tuple[Step, ...]:
    """Make weights low-rank.

    Parameters
    ----------
    steps : sequence of Step
        Steps.
    ranks : mapping of str to int
        Rank by the name of the step.

    Returns
    -------
    tuple of Step
        Steps.
    """

    def change(step: Step) -> Step:
        if isinstance(step, Conv | Linear) and step.name in ranks:
            return replace(step, rank=ranks[step.name])
        return step

    return map_steps(steps, change)


def replace_widths(steps: Sequence[Step], channels: Channels) -> tuple[Step, ...]:
    """Change the number of channels of every hidden layer.

    Parameters
    ----------
    steps : sequence of Step
        Steps.
    channels : callable
        Function of a number of channels that returns the new number.

    Returns
    -------
    tuple of Step
        Steps; the image's channels and the classes stay.
    """

    def change(step: Step) -> Step:
        if isinstance(step, Norm):
            return replace(step, channels=channels(step.channels))
        if not isinstance(step, Conv | Linear):
            return step
        inputs = channels(step.inputs) if step.cut else step.inputs
        if isinstance(step, Linear) and step.last:
            return replace(step, inputs=inputs)
        return replace(step, inputs=inputs, outputs=channels(step.outputs))

    return map_steps(steps, change)


def list_factorisable(steps: Sequence[Step]) -> tuple[str, ...]:
    """List the steps that can have low-rank weights, in their order.

    These are convolutions except 1x1 ones, and linear layers except the last.
    """
    names = []
    for step in iterate_steps(steps):
        if (isinstance(step, Conv) and step.kernel > 1) or (
            isinstance(step, Linear) and not step.last
        ):
            names.append(step.name)
    return tuple(names)


class Parameter(NamedTuple):
    """A parameter of a step.

    Parameters
    ----------
    name : str
        Name.
    shape : tuple of int
        Shape in one row.
    axes : tuple of Axis or None
        Channels of each axis; None if it does not follow hidden channels.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[Axis | None, ...]


def list_parameters(step: Step) -> Iterator[Parameter]:
    """List a step's parameters.

    Factors have no axes, because a network is reduced in width or in rank, not in both.
    """
    if isinstance(step, Norm):
        for part in ("weight", "bias"):
            yield Parameter(f"{step.name}.{part}", (step.channels,), (Axis(step.channels),))
    if not isinstance(step, Conv | Linear):
        return
    repeat = step.repeat if isinstance(step, Linear) else 1
    into = Axis(step.inputs, repeat) if step.cut else None
    out = None if isinstance(step, Linear) and step.last else Axis(step.outputs)
    k = step.kernel if isinstance(step, Conv) else 1
    width = step.inputs * repeat
    if step.rank is not None:
        yield Parameter(f"{step.name}.left", (step.outputs * k, step.rank), (None, None))
        yield Parameter(f"{step.name}.right", (step.rank, width * k), (None, None))
    elif isinstance(step, Conv):
        shape = (step.outputs, step.inputs, k, k)
        yield Parameter(f"{step.name}.weight", shape, (out, into, None, None))
    else:
        yield Parameter(f"{step.name}.weight", (width, step.outputs), (into, out))
    if isinstance(step, Linear) or step.bias:
        yield Parameter(f"{step.name}.bias", (step.outputs,), (out,))


def compute_start_bound(step: Step) -> float:
    """Compute the bound b of weights that start uniform in +-b.

    Parameters
    ----------
    step : Conv or Linear
        Step.

    Returns
    -------
    float
        sqrt(6 / fan_in) (He et al. 2015), and 1/sqrt(fan_in) in the last layer. The product of the
        factors of a low-rank step has the same variance.
    """
    assert isinstance(step, Conv | Linear)
    fan_in = step.inputs * (step.kernel**2 if isinstance(step, Conv) else step.repeat)
    square = (1.0 if isinstance(step, Linear) and step.last else 6.0) / fan_in
    if step.rank is None:
        return math.sqrt(square)
    return (3.0 * square / step.rank) ** 0.25  # rank (bound^2 / 3)^2 = square / 3
