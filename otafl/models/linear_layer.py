"""Chains of layers, whose weights are matrices: samples, start, products and dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import derive_words
from otafl.core.tensors import multiply_rows
from otafl.models.base import Draw, ModelSettings
from otafl.models.layer_contract import Layer
from otafl.models.layers import Conv, Linear, Relu, WeightedLayer


def find_image(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return channels, height and width of samples of a shape; None if they are no images."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    side = math.isqrt(math.prod(shape))
    return (1, side, side) if len(shape) == 1 and side**2 == shape[0] else None


def find_image_shape(shape: tuple[int, ...], model: str) -> tuple[int, int, int]:
    """Return channels, height and width of samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    model : str
        Name of the model in the scenario, for the message.

    Returns
    -------
    tuple of int
        Channels, height and width.

    Raises
    ------
    UserError
        If the samples are not images.
    """
    image = find_image(shape)
    if image is None:
        raise UserError(
            f"model.name: '{model}' needs images of shape [height, width] or [channels, height, "
            "width], or a square number of grey pixels; a sample of the data set has shape "
            f"{list(shape)}"
        )
    return image


def require_tokens(shape: tuple[int, ...], model: str) -> int:
    """Return the length of sequences [length] of tokens.

    Raises
    ------
    UserError
        If samples of this shape are none.
    """
    if len(shape) != 1:
        raise UserError(
            f"model.name: '{model}' needs sequences of tokens, but a sample of the data set has "
            f"shape {list(shape)}; must be [length], as of data: shakespeare"
        )
    return shape[0]


def find_sequence_shape(shape: tuple[int, ...], model: str) -> tuple[int, int]:
    """Return length and features of samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    model : str
        Name of the model in the scenario, for the message.

    Returns
    -------
    tuple of int
        Length and features.

    Raises
    ------
    UserError
        If the samples are not sequences.
    """
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) == 1:
        return shape[0], 1
    raise UserError(
        f"model.name: '{model}' needs sequences of shape [length, features] or [length]; a sample "
        f"of the data set has shape {list(shape)}"
    )


LEAKY_SLOPE = 0.1
"""Slope of leaky ReLU below zero (Shi et al. 2023, PRIOR)."""

BiasStart = Literal["zero", "uniform"]
"""Start of biases."""


class ActivationSettings(ModelSettings):
    """Settings that models of linear layers share."""

    activation: Literal["relu", "leaky_relu"] = "relu"
    """activation after each layer except the last; leaky_relu has the slope 0.1 below zero"""
    bias_start: BiasStart = "zero"
    """start of biases: zero, or uniform in +-1/sqrt(fan_in) as in PyTorch"""

    @property
    def slope(self) -> float:
        """The slope of the activation below zero."""
        return LEAKY_SLOPE if self.activation == "leaky_relu" else 0.0


class DropoutSettings(ActivationSettings):
    """Settings of models with hidden fully connected layers."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """probability with which a training step sets an output of a hidden fully connected layer to 0;
    no dropout if 0"""


def make_chain(
    widths: Sequence[int], slope: float = 0.0, front: Sequence[Layer] = ()
) -> tuple[Layer, ...]:
    """Make fully connected layers with an activation between them, for a `LayeredModel`.

    Parameters
    ----------
    widths : sequence of int
        Inputs of the first one, a multiple of the channels below it, and outputs of each.
    slope : float
        Slope of the activation below zero; 0 is ReLU.
    front : sequence of Layer
        Layers before them: numbered convolutions, pooling and activations.

    Returns
    -------
    tuple of Layer
        All layers, of which those with a weight are numbered from 0.

    Raises
    ------
    ValueError
        For a negative slope, or first inputs that the channels do not divide.
    """
    if slope < 0:
        raise ValueError(f"slope must not be negative; got {slope}")
    layers, convolutions = list(front), [one for one in front if isinstance(one, Conv)]
    channels = convolutions[-1].outputs if convolutions else widths[0]
    if widths[0] % channels:
        raise ValueError(
            f"widths[0] must be a multiple of the {channels} channels of the last convolution; "
            f"got {widths[0]}"
        )
    for number, (inputs, outputs) in enumerate(pairwise(widths), len(convolutions)):
        if layers:
            layers.append(Relu(slope))
        last = number == len(convolutions) + len(widths) - 2
        sizes = channels, outputs, inputs // channels
        layers.append(Linear(str(number), *sizes, last=last, cut=number > 0, numbered=True))
        channels = outputs
    return tuple(layers)


def draw_uniform_start(
    layers: Sequence[WeightedLayer], draw: Draw, bias: BiasStart = "zero"
) -> Tensors:
    """Draw weights uniform in +-1/sqrt(fan_in).

    Parameters
    ----------
    layers : sequence of WeightedLayer
        Layers.
    draw : Draw
        Source of uniform numbers.
    bias : {"zero", "uniform"}
        Start of biases, zero or uniform in the same range.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Parameters.
    """
    params = {}
    for layer in layers:
        uniform = draw(layer.weight, (layer.inputs, layer.outputs))
        params[layer.weight] = (2.0 * uniform - 1.0) / layer.inputs**0.5
        if bias == "zero":
            params[layer.bias] = uniform.new_zeros(uniform.shape[0], layer.outputs)
        else:
            uniform = draw(layer.bias, (layer.outputs,))
            params[layer.bias] = (2.0 * uniform - 1.0) / layer.inputs**0.5
    return params


class LinearMap(Protocol):
    """Linear map that acts like a weight [n, M, N] without its dense form."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute x W [n, B, N] for x [n, B, M]."""

    def backward(self, g: Tensor) -> Tensor:
        """Compute g W^T [n, B, M] for g [n, B, N]."""


def apply(weight: Tensor | LinearMap, x: Tensor) -> Tensor:
    """Compute x W.

    Parameters
    ----------
    weight : Tensor [n, M, N], Tensor [1, M, N], or LinearMap
        Weight of each row, or of all rows.
    x : Tensor [n, B, M], or [1, B, M]
        Inputs of each row, or of all rows.

    Returns
    -------
    Tensor [n, B, N]
        Outputs; [1, B, N] if both are shared by all rows. A shared weight multiplies the inputs of
        all rows in one product.
    """
    if not isinstance(weight, Tensor):
        return weight.forward(x)
    if weight.shape[0] == 1 and x.shape[0] > 1:
        return torch.matmul(x, weight[0])
    return multiply_rows(x, weight)


def apply_transposed(weight: Tensor | LinearMap, g: Tensor) -> Tensor:
    """Compute g W^T.

    Parameters
    ----------
    weight : Tensor [n, M, N], Tensor [1, M, N], or LinearMap
        Weight of each row, or of all rows.
    g : Tensor [n, B, N]
        Gradients by the outputs.

    Returns
    -------
    Tensor [n, B, M]
        Gradients by the inputs.
    """
    if not isinstance(weight, Tensor):
        return weight.backward(g)
    if weight.shape[0] == 1 and g.shape[0] > 1:
        return torch.matmul(g, weight[0].mT)
    return torch.bmm(g, weight.mT)


def add_bias(z: Tensor, bias: Tensor) -> Tensor:
    """Add a bias [n or 1, N] to outputs z [n or 1, B, N], in place where z has all rows."""
    if bias.shape[0] > z.shape[0]:
        return z + bias[:, None]
    return z.add_(bias[:, None])


def draw_dropout(
    keys: Tensor, layer: int, shape: tuple[int, ...], share: float, dtype: torch.dtype
) -> Tensor:
    r"""Draw the factors of a dropout layer from the random streams of trials.

    A minibatch has a key for each row, `Batch.keys`, from a stream of otafl. Factors are functions
    of the key and the layer's number in the forward pass. So they are the same alone, in a stack of
    trials, in any chunk of the cohort and after a resume.

    Parameters
    ----------
    keys : Tensor, int64 [n], or []
        Keys of the rows.
    layer : int
        Number of the layer in the forward pass.
    shape : tuple of int
        Shape of a row's factors.
    share : float
        Probability p that an output is set to 0.
    dtype : torch.dtype
        Type of the factors.

    Returns
    -------
    Tensor [n, *shape], or [*shape]
        Factors: 0 with probability p, and 1 / (1 - p) otherwise.

    Notes
    -----
    The factors m are independent (Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural
    Networks from Overfitting"), with

    .. math:: \mathrm{E}[m] = 1, \quad \mathrm{E}[m^2] = \frac{1}{1 - p}
    """
    words = derive_words(keys, layer, math.prod(shape)).unflatten(-1, shape)
    bound = min(round(share * 2.0**64) - 2**63, 2**63 - 1)
    return (words >= bound).to(dtype) * (1.0 / (1.0 - share) if share < 1.0 else 0.0)
