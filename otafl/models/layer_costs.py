"""Operations and memory of the steps of a network, for one sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from otafl.core.errors import UserError
from otafl.models.base import LOSS, NORMALISING
from otafl.models.layer_steps import (
    Conv,
    Image,
    Linear,
    MaxPool,
    MeanPool,
    Norm,
    Residual,
    Step,
    Unroll,
)


class Costs(NamedTuple):
    """Costs of one sample.

    Parameters
    ----------
    macs : int
        Multiply-accumulate operations of convolutions and linear layers.
    first_macs : int
        Those whose input depends on no parameter.
    elementwise : int
        Other operations of a forward pass.
    saved_activations : int
        Numbers that a training step keeps.
    image : tuple of int
        Size of the image after the last step.
    """

    macs: int
    first_macs: int
    elementwise: int
    saved_activations: int
    image: Image


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
    macs = first_macs = elementwise = kept = 0
    for step in steps:
        c, h, w = image
        if isinstance(step, Conv):
            image, parts, between = _count_convolution(step, image, unroll)
            macs += sum(parts)
            first_macs += first * parts[0]
            kept += between
        elif isinstance(step, Linear):
            m = c * h * w
            rank = step.rank
            parts = [m * step.outputs] if rank is None else [m * rank, rank * step.outputs]
            macs += sum(parts)
            first_macs += first * parts[0]
            image = step.outputs, 1, 1
        elif isinstance(step, MaxPool):
            image = c, h // step.size, w // step.size
        elif isinstance(step, MeanPool):
            image = c, 1, 1
        elif isinstance(step, Residual):
            body, beside = (
                count_costs(side, image, unroll, first) for side in (step.body, step.shortcut)
            )
            macs, kept = (
                macs + body.macs + beside.macs,
                kept + body.saved_activations + beside.saved_activations,
            )
            first_macs += body.first_macs + beside.first_macs
            elementwise += body.elementwise + beside.elementwise
            image = body.image
        if min(image) < 1:
            kind = "max-pooling"
            if isinstance(step, Conv):
                kind = f"convolution with windows of {step.kernel}x{step.kernel} pixels"
            raise UserError(
                f"model.name: images of {h}x{w} pixels are too small for a {kind}; use larger "
                "images, or fewer convolutions or poolings"
            )
        first = first and not isinstance(step, Conv | Linear | Norm | Residual)
        elementwise += _count_elementwise(step, c * h * w, math.prod(image))
        kept += math.prod(image)
    return Costs(macs, first_macs, elementwise, kept, image)


def _count_elementwise(step: Step, num_inputs: int, num_outputs: int) -> int:
    """Count the operations of a step besides multiplications by a weight.

    num_inputs, num_outputs: numbers of the input and the output.
    """
    if isinstance(step, Linear):
        return (1 + LOSS) * num_outputs if step.last else num_outputs
    if isinstance(step, Conv):
        return num_outputs if step.bias else 0
    if isinstance(step, Norm):
        return NORMALISING * num_outputs
    return num_inputs if isinstance(step, MaxPool | MeanPool) else num_outputs


def _count_convolution(step: Conv, image: Image, unroll: Unroll) -> tuple[Image, list[int], int]:
    """Return the image after a convolution, its MACs, and the numbers within a low-rank one.

    A low-rank convolution consists of two, with one number of MACs each.
    """
    c, h, w = image
    k, s, p = step.kernel, step.stride, step.padding
    high, wide = (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1
    after = step.outputs, high, wide
    if step.rank is None:
        return after, [step.outputs * c * k * k * high * wide], 0
    # the first of the two keeps one side of the image
    between = step.rank * (high * w if unroll == "vertical_first" else h * wide)
    return after, [between * c * k, step.outputs * step.rank * k * high * wide], between
