"""Lists of steps: residual blocks, forward pass, costs, `torch.nn.Module`, and plain data."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from otafl.core.errors import UserError
from otafl.models.layer_steps import Conv, Linear, Norm
from otafl.models.step_contract import Costs, Image, Part, Pass, Step, Sum, Unroll, make_sequence


@dataclass(frozen=True)
class Residual(Step):
    """Residual block, body(x) + shortcut(x); an empty shortcut is x itself."""

    body: tuple[Step, ...]
    shortcut: tuple[Step, ...] = ()

    def run(self, x: Tensor, now: Pass) -> Tensor:
        return run_steps(self.body, x, now) + run_steps(self.shortcut, x, now)

    def count(self, image: Image, unroll: Unroll) -> Costs:
        sides = [count_costs(side, image, unroll) for side in (self.body, self.shortcut)]
        return Costs(
            sides[0].image,
            tuple(one for side in sides for one in side.products),
            sum(side.first_macs for side in sides),
            sum(side.elementwise for side in sides) + math.prod(sides[0].image),
            sum(side.saved_activations for side in sides),
        )

    def build_module(self, params: Mapping[str, Tensor], unroll: Unroll, flat: bool) -> nn.Module:
        return Sum(*(build_modules(side, params, unroll) for side in (self.body, self.shortcut)))


def iterate_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield all steps, those of residual blocks in their position, body first."""
    for step in steps:
        if isinstance(step, Residual):
            yield from iterate_steps((*step.body, *step.shortcut))
        else:
            yield step


def run_steps(steps: Sequence[Step], x: Tensor, now: Pass) -> Tensor:
    """Run steps on images [B, n C, H, W] or vectors [B, n M]."""
    for step in steps:
        x = step.run(x, now)
    return x


def count_costs(
    steps: Sequence[Step], image: Image, unroll: Unroll = "vertical_first", first: bool = True
) -> Costs:
    """Count the costs of one sample.

    Parameters
    ----------
    steps : sequence of Step
        Steps of a network.
    image : tuple of int
        Channels, height and width of the input.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows of a low-rank convolution.
    first : bool
        Whether the input is the sample itself.

    Returns
    -------
    Costs
        The costs.

    Raises
    ------
    UserError
        If the image is too small for the steps.
    """
    products: tuple[int, ...] = ()
    first_macs = elementwise = saved = 0
    for step in steps:
        own, (_, h, w) = step.count(image, unroll), image
        image = own.image
        if min(image) < 1:
            kind = "max-pooling"
            if isinstance(step, Conv):
                kind = f"convolution with windows of {step.kernel}x{step.kernel} pixels"
            raise UserError(
                f"model.name: images of {h}x{w} pixels are too small for a {kind}; use larger "
                "images, or fewer convolutions or poolings"
            )
        products += own.products
        if first:
            first_macs += own.first_macs if isinstance(step, Residual) else sum(own.products[:1])
        first = first and not isinstance(step, Conv | Linear | Norm | Residual)
        elementwise += own.elementwise
        saved += own.saved_activations + math.prod(image)
    return Costs(image, products, first_macs, elementwise, saved)


def build_modules(
    steps: Sequence[Step],
    params: Mapping[str, Tensor],
    unroll: Unroll = "vertical_first",
    parts: Mapping[str, Sequence[Part]] | None = None,
) -> nn.Sequential:
    """Build the module of steps.

    Parameters
    ----------
    steps : sequence of Step
        Steps.
    params : mapping of str to Tensor [*shape]
        Parameters of one row.
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows of a low-rank convolution.
    parts : mapping of str to sequence of Part, optional
        What acts in place of the weights of the steps of these names.

    Returns
    -------
    torch.nn.Sequential
        The module of samples [batch, channels, height, width], or of vectors if the first step is
        linear.
    """
    named: OrderedDict[str, nn.Module] = OrderedDict()
    flat = isinstance(steps[0], Linear) if steps else False
    for place, step in enumerate(steps):
        name = getattr(step, "name", f"{type(step).__name__.lower()}{place}").replace(".", "_")
        if isinstance(step, Linear) and not flat:
            named["features"], flat = nn.Flatten(), True
        if parts is not None and name in parts:
            named[name] = make_sequence(parts[name], params[f"{name}.bias"])
        else:
            named[name] = step.build_module(params, unroll, flat)
    return nn.Sequential(named)


def add_reshaping(
    module: nn.Sequential, steps: Sequence[Step], image: Image, input_shape: tuple[int, ...]
) -> nn.Sequential:
    """Return the module of steps for samples of a shape: images, or vectors, or grey pixels."""
    front: OrderedDict[str, nn.Module] = OrderedDict()
    is_flat = isinstance(steps[0], Linear)
    if len(input_shape) > 1 and (input_shape != image or is_flat):
        front["flatten"] = nn.Flatten()
    if input_shape != image and not is_flat:
        front["image"] = nn.Unflatten(1, image)
    return nn.Sequential(front | OrderedDict(module.named_children()))


def map_steps(steps: Sequence[Step], change: Callable[[Step], Step]) -> tuple[Step, ...]:
    """Return the steps after a change of each, including those of residual blocks."""
    return tuple(
        Residual(map_steps(step.body, change), map_steps(step.shortcut, change))
        if isinstance(step, Residual)
        else change(step)
        for step in steps
    )
