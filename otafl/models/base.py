"""Contract of a model: pure functions of parameters with a leading row dimension.

A row is one (trial, device) pair with its own parameters. Samples x are [n, B, *input], or [1, B,
*input] if all rows have the same samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from otafl.core.choices import declare_choice
from otafl.core.contracts import Batch, Tensors, unsqueeze_like
from otafl.core.settings import Settings
from otafl.losses.base import Loss
from otafl.losses.cross_entropy import CrossEntropy

Draw = Callable[[str, tuple[int, ...]], Tensor]
"""Function of name and shape that returns numbers [S, *shape] uniform in (0, 1), for a model's
start."""


class ModelSettings(Settings):
    """Settings that all models have."""

    start: Any = declare_choice("start", "start of the weights")


Shapes = dict[str, tuple[int, ...]]
"""Shapes of parameters by name."""

Count = Annotated[int, Field(ge=1)]

Number = TypeVar("Number", float, np.ndarray)
"""A number of samples, or an array of such numbers."""


OutputChannels = Annotated[
    tuple[Count, ...], Field(min_length=1, description="output channels of each convolution")
]

HiddenWidths = Annotated[
    tuple[Count, ...],
    Field(description="widths of the fully connected layers before the last; may be empty"),
]


LOSS = 4
"""Operations of the cross-entropy per class.

Subtraction of the largest, exponential, sum, quotient.
"""

START_BITS = 32
"""Bits of a weight in a broadcast of a start."""

NORMALISING = 6
"""Operations of a normalisation per number: mean and variance (3), the rest (3)."""


class PassThrough:
    """Linear map of a last layer whose scores are its inputs, the representations."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()  # a bias is added to it in place


class Model(ABC):
    """A model with a batched forward pass.

    Gradients come from autograd, if the class does not define them. A model that a scenario names
    is made as `Class(settings, input_shape, classes)`. The arguments are the settings of the
    section (a nested class `Settings`), the shape of one sample and the number of classes. It
    raises UserError if it does not fit the samples.
    """

    shapes: Shapes
    """Shape of each parameter in one row."""
    macs: int
    """Multiply-accumulate operations of a forward pass of one sample."""
    first_macs: int = 0
    """MACs whose input is the sample itself, so that it needs no gradient."""
    elementwise: int = 0
    """Operations of a forward pass of one sample besides MACs, the same number as backward.

    Biases, activations, normalisation, pooling, and the loss.
    """
    saved_activations: int = 0
    """Real numbers that one sample adds to the memory of a training step, if they are many."""
    linear_weights: Mapping[str, tuple[int, int]] = {}
    """Sides (inputs, outputs) of each parameter that enters as x W, for methods that replace it.

    A convolution has k k C inputs, the numbers of its window. See `logits`.
    """
    positions: Mapping[str, int] = {}
    """Number of products with each of `linear_weights` for one sample; 1 if it is left out."""
    norms: tuple[str, ...] = ()
    """Names of the parameters of normalisation layers."""
    loss: Loss = CrossEntropy()
    """The loss that it is trained with."""
    scores_positions: bool = False
    """Samples are sequences of tokens, and it has scores for every position."""
    positions_by: ClassVar[str] = ""
    """Name and settings with which it scores every position, if its settings decide that."""
    is_affine: bool = False
    """Scores are an affine function of the sample, so that squared losses are quadratic."""
    has_intercept: bool = True
    """An affine model's scores of the zero sample can be other than 0."""
    ridge: float = 0.0
    """Weight of the penalty |W|^2 / 2 of an affine model's weights, in the training objective."""
    uses_dropout: bool = False
    """Whether training draws masks of dropout from `Batch.keys`."""
    batch_norms: bool = False
    """Whether the model normalises by statistics of the batch, which `moments` gives."""

    start_params: Mapping[str, Tensor] = {}
    """Weights [*shape] of `model.start` that every trial starts from; others are drawn."""
    own_weights: Mapping[str, Tensor] | None = None
    """Weights [*shape] that a user-defined module comes with."""
    constants: Mapping[str, Tensor] = {}
    """Values [*shape] of a user-defined module that are not trained: buffers, frozen parameters."""
    start_samples: tuple[Tensor, Tensor] | None = None
    """Samples and labels that `model.start` was trained on, which no device holds."""

    @property
    def head(self) -> tuple[str, ...]:
        """The parameters of the last layer: the last one of two or more dimensions and the rest.

        They are all parameters of a model of one layer.
        """
        names = tuple(self.shapes)
        weights = [place for place, name in enumerate(names) if len(self.shapes[name]) >= 2]
        return names[weights[-1] :] if weights else names

    def make_identity_head(self, like: Tensor) -> dict[str, Any]:
        """Make an identity without bias in place of a linear last layer.

        Scores are then the inputs [n, B, M] of this layer, the representations of samples. like: a
        tensor [n, ...] of the type of the parameters.
        """
        weight, bias = self.head
        width, unit = self.shapes[weight][0], cast(Any, PassThrough())
        if weight not in self.linear_weights:
            unit = torch.eye(width, dtype=like.dtype, device=like.device).expand(len(like), -1, -1)
        return {weight: unit, bias: like.new_zeros(len(like), width)}

    def count_products(self, weight: str) -> int:
        """Return the number of products with one of `linear_weights` for a sample."""
        return self.positions.get(weight, 1)

    @classmethod
    def find_scores_positions(cls, settings: Any) -> bool:
        """Return whether a model with these settings scores every position of a sequence."""
        return cls.scores_positions

    @abstractmethod
    def init(self, draw: Draw) -> Tensors:
        """Return the start parameters [S, *shape]."""

    @abstractmethod
    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Compute the scores of samples.

        Parameters
        ----------
        params : dict of str to Tensor [n, *shape]
            Parameters of the rows. If the model has `linear_weights`, each of them may also be a
            Tensor [1, M, N], which all rows share, or a `models.linear_layer.LinearMap`. Every
            other parameter may then be a Tensor [1, *shape].
        x : Tensor [n, B, *input], or [1, B, *input]
            Samples of each row, or of all rows.

        Returns
        -------
        Tensor [n, B, classes]
            Scores.
        """

    def draw_random_start(self, draw: Draw) -> Tensors:
        """Draw start parameters that differ from draw to draw, for methods with several models.

        Parameters
        ----------
        draw : callable
            Source of random numbers, see `Draw`.

        Returns
        -------
        dict of str to Tensor [S, *shape]
            By default those of `init`.
        """
        return self.init(draw)

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Tensors:
        """Compute the statistics [n, *shape] of batch normalisations on a batch.

        `logits` uses them if it finds them in its `params`.
        """
        return {}

    def score_batch(self, params: Mapping[str, Any], batch: Batch) -> Tensor:
        """Compute the scores of minibatches in training.

        Parameters
        ----------
        params : dict of str to Tensor [n, *shape]
            Parameters of the rows, in the same forms as for `logits`.
        batch : Batch
            Minibatch of each row, or one that all rows share. Samples of weight 0 are padding
            without any effect. Without keys no dropout is applied.

        Returns
        -------
        Tensor [n, B, classes]
            Scores; by default those of `logits`.
        """
        return self.logits(params, batch.x)

    def copy_trainable(self, params: Tensors) -> Tensors:
        """Copy parameters [n, *shape] to train in place, in the best layout for `take_sgd_step_`.

        Methods may use other layouts.
        """
        return copy_params(params)

    def compute_gradients(self, params: Tensors, batch: Batch) -> tuple[Tensor, Tensors]:
        """Compute the loss and its gradient.

        Parameters
        ----------
        params : dict of str to Tensor [n, *shape]
            Parameters of the rows.
        batch : Batch
            Minibatch of each row.

        Returns
        -------
        Tensor [n]
            Loss.
        dict of str to Tensor [n, *shape]
            Gradients.
        """

        def compute_objective(leaves: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
            scores = self.score_batch(leaves, batch)
            loss = self.loss.compute_mean(scores, batch)
            return loss, loss

        return differentiate(compute_objective, params, batch)

    def take_sgd_step_(self, params: Tensors, batch: Batch, step: Tensor) -> Tensor:
        """Take one SGD step in place.

        Parameters
        ----------
        params : dict of str to Tensor [n, *shape]
            Parameters of the rows, changed in place.
        batch : Batch
            Minibatch of each row.
        step : Tensor [n]
            Step size.

        Returns
        -------
        Tensor [n]
            Loss before the step.
        """
        loss, grads = self.compute_gradients(params, batch)
        descend_(params, grads, step)
        return loss

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        """Build the `torch.nn.Module` of a trained model.

        Parameters
        ----------
        params : mapping of str to Tensor [*shape]
            Parameters of one row, which are copied.
        input_shape : tuple of int
            Shape of one sample.

        Returns
        -------
        torch.nn.Module, or None
            Module from samples [batch, *input_shape] to scores [batch, classes]; None if there is
            none.
        """
        return None

    @property
    def num_params(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def count_start_bits(self) -> int:
        """Count the bits of one broadcast of the weights of `model.start`, 32 for each."""
        return START_BITS * sum(one.numel() for one in self.start_params.values())

    def count_forward_flops(self, samples: Number) -> Number:
        """Count the operations of forward passes, a multiplication and an addition for each MAC."""
        return (2.0 * self.macs + self.elementwise) * samples

    def count_training_flops(self, samples: Number) -> Number:
        """Count the operations of forward and backward passes.

        A backward pass multiplies by the weights and by each layer's input, twice the MACs. The
        first layers need no gradient by their input.
        """
        products = 6.0 * self.macs - 2.0 * self.first_macs
        return (products + 2.0 * self.elementwise) * samples


def flatten(tensors: Tensors) -> Tensor:
    """Concatenate tensors.

    Parameters
    ----------
    tensors : dict of str to Tensor [n, *shape]
        Tensors.

    Returns
    -------
    Tensor [n, P]
        Tensors side by side; a single tensor is not copied.
    """
    columns = [block.flatten(1) for block in tensors.values()]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def unflatten(flat: Tensor, shapes: Shapes) -> Tensors:
    """Split concatenated tensors.

    Parameters
    ----------
    flat : Tensor [n, P]
        Tensors side by side.
    shapes : dict of str to tuple of int
        Shapes, in order.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        Views of `flat`.
    """
    parts = flat.split_with_sizes([math.prod(shape) for shape in shapes.values()], 1)
    rows = flat.shape[0]
    return {
        name: part.view(rows, *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def compute_increment(
    new: Tensors, old: Tensor, shapes: Shapes, out: Tensor | None = None
) -> Tensor:
    """Compute the increment of parameters.

    Parameters
    ----------
    new : dict of str to Tensor [n, *shape]
        New parameters.
    old : Tensor [n, P]
        Old ones, concatenated.
    shapes : dict of str to tuple of int
        Shapes of the old parameters, in order.
    out : Tensor [n, P], optional
        Memory for the increment; new memory if not given.

    Returns
    -------
    Tensor [n, P]
        new - old.
    """
    flat = torch.empty_like(old, memory_format=torch.contiguous_format) if out is None else out
    received, parts = unflatten(old, shapes), unflatten(flat, shapes)
    for name, block in received.items():
        torch.sub(new[name], block, out=parts[name])
    return flat


def copy_params(params: Tensors) -> Tensors:
    """Copy parameters in contiguous memory, as batched products in place need it."""
    return {name: copy_contiguous(block) for name, block in params.items()}


def copy_contiguous(block: Tensor) -> Tensor:
    """Copy a tensor in contiguous memory."""
    return block.clone(memory_format=torch.contiguous_format)


def descend_(params: Tensors, grads: Tensors, step: Tensor) -> None:
    """Take a step against the gradients in place.

    Parameters
    ----------
    params, grads : dict of str to Tensor [n, *shape]
        Parameters, changed in place, and gradients.
    step : Tensor [n]
        Step size.
    """
    for name, grad in grads.items():
        params[name].addcmul_(grad, unsqueeze_like(step, grad), value=-1.0)


def differentiate(
    objective: Callable[[Tensors, Batch], tuple[Tensor, Tensor]], params: Tensors, batch: Batch
) -> tuple[Tensor, Tensors]:
    """Compute gradients by autograd.

    Parameters
    ----------
    objective : callable
        Function of parameters and batch that returns the loss [n] and the objective [n]. Its
        arguments are copies.
    params : dict of str to Tensor [n, *shape]
        Parameters.
    batch : Batch
        Minibatch of each row.

    Returns
    -------
    Tensor [n]
        Loss.
    dict of str to Tensor [n, *shape]
        Gradients of the objective.
    """
    with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        weight = None if batch.weight is None else batch.weight.clone()
        own = replace(batch, x=batch.x.clone(), y=batch.y.clone(), weight=weight)
        loss, lowered = objective(leaves, own)
        grads = torch.autograd.grad(
            lowered.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
    return loss.detach(), dict(zip(leaves, grads, strict=True))
