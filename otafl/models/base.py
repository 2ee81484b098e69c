"""Say what a model is: pure functions of parameters that carry a leading row dimension.

One row is one (trial, device) pair with parameters of its own; x is [n, B, *input], or
[1, B, *input] where all rows see the same samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Batch, Tensors, unsqueeze_like
from otafl.core.renamed import Renamed
from otafl.losses.base import Loss
from otafl.losses.cross_entropy import CrossEntropy

Draw = Callable[[str, tuple[int, ...]], Tensor]
"""(name, shape) -> [S, *shape] uniform in (0, 1): where a model's start comes from."""

Shapes = dict[str, tuple[int, ...]]

Count = Annotated[int, Field(ge=1)]

Number = TypeVar("Number", float, np.ndarray)
"""So many samples, or an array of such numbers."""


OutputChannels = Annotated[
    tuple[Count, ...], Field(min_length=1, description="output channels of each convolution")
]

HiddenWidths = Annotated[
    tuple[Count, ...],
    Field(description="widths of the fully connected layers before the last; may be empty"),
]


LOSS = 4
"""Operations a class of the cross-entropy: less the largest, exponential, sum, quotient."""

NORMALISING = 6
"""Operations a number of a normalisation: mean and variance (3), the rest (3)."""


class Model(Renamed, ABC):
    """A model has any batched forward pass; gradients come by autograd where it does not write
    them.

    A model that a scenario names is made as `Class(settings, input_shape, classes)`, of the
    section's settings (a nested class `Settings`), the shape of one sample and the number of
    classes. It raises UserError where it does not fit the samples.
    """

    shapes: Shapes
    """The parameters: name -> shape in one row."""
    macs: int
    """Multiplications of a forward pass of one sample."""
    first_macs: int = 0
    """Those whose input takes no gradient, as it depends on no parameter: the sample itself."""
    elementwise: int = 0
    """Operations of a forward pass of one sample beside its multiplications, as many as backward:
    biases, activations, normalisation, pooling, the loss."""
    saved_activations: int = 0
    """Real numbers that one sample adds to the memory of a training step, where they are many."""
    norms: tuple[str, ...] = ()
    """Names of the parameters of normalisation layers."""
    loss: Loss = CrossEntropy()
    """The loss that it is trained with."""
    scores_positions: bool = False
    """Samples are sequences of tokens, and it has scores for every position."""
    is_affine: bool = False
    """Scores are an affine function of the sample, so that squared losses are quadratic."""
    has_intercept: bool = True
    """An affine model's scores of the zero sample can be other than 0."""
    ridge: float = 0.0
    """Weight of the penalty |W|^2 / 2 of an affine model's weights, in the training objective."""
    batch_norms: bool = False
    """Whether it normalises by statistics of the batch; `moments` gives them."""

    @abstractmethod
    def init(self, draw: Draw) -> Tensors:
        """Return the start parameters [S, *shape]."""

    @abstractmethod
    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        """Return scores [n, B, classes] of classes or values, or [n, B, length, tokens].

        Parameters
        ----------
        params : name -> [n, *shape].
        x : samples [n, B, *input], or [1, B, *input] that all rows share.
        """

    def moments(self, params: Mapping[str, Any], x: Tensor) -> Tensors:
        """Return the statistics [n, *shape] of batch normalisations on a batch, which `logits` uses
        where it finds them in its `params`."""
        return {}

    def training_logits(
        self, params: Mapping[str, Any], x: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return scores as they are in training.

        Parameters
        ----------
        weight : of the samples, [n, B]; those of weight 0 are padding, which changes nothing.
        """
        return self.logits(params, x)

    def copy_trainable(self, params: Tensors) -> Tensors:
        """Copy parameters [n, *shape] to be trained in place, laid out as `take_sgd_step_` is
        fastest with; methods may lay them out otherwise."""
        return copy_params(params)

    def compute_gradients(self, params: Tensors, batch: Batch) -> tuple[Tensor, Tensors]:
        """Return the loss [n] of each row and its gradient [n, *shape]."""

        def compute_objective(leaves: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
            scores = self.training_logits(leaves, batch.x, batch.weight)
            loss = self.loss.compute_mean(scores, batch)
            return loss, loss

        return differentiate(compute_objective, params, batch)

    def take_sgd_step_(self, params: Tensors, batch: Batch, step: Tensor) -> Tensor:
        """Take one SGD step of size step [n] in place; return the loss [n] before it."""
        loss, grads = self.compute_gradients(params, batch)
        descend_(params, grads, step)
        return loss

    def describe(self) -> dict[str, Any] | None:
        """Return what the model is as plain data, of which `otafl.models.modules` makes a torch
        module; None if it has no such description."""
        return None

    @property
    def num_params(self) -> int:
        """Count the parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def count_forward_flops(self, samples: Number) -> Number:
        """Return the operations of forward passes: a multiplication and an addition a MAC."""
        return (2.0 * self.macs + self.elementwise) * samples

    def count_training_flops(self, samples: Number) -> Number:
        """Return the operations of forward and backward passes. A backward pass multiplies by the
        weights and by what each layer saw, twice the MACs, but for the first layers, which hand no
        gradient on."""
        products = 6.0 * self.macs - 2.0 * self.first_macs
        return (products + 2.0 * self.elementwise) * samples


def flatten(tensors: Tensors) -> Tensor:
    """Put blocks [n, *shape] side by side as [n, P]; makes no copy if there is only one."""
    columns = [block.flatten(1) for block in tensors.values()]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def unflatten(flat: Tensor, shapes: Shapes) -> Tensors:
    """Return views [n, *shape] into flat [n, P], in the order of `shapes`."""
    parts = flat.split([math.prod(shape) for shape in shapes.values()], 1)
    return {
        name: part.view(len(flat), *shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def copy_params(params: Tensors) -> Tensors:
    """Copy parameters, contiguous as batched products in place need them."""
    return {name: b.clone(memory_format=torch.contiguous_format) for name, b in params.items()}


def descend_(params: Tensors, grads: Tensors, step: Tensor) -> None:
    """Take a step of size step [n] against the gradients [n, *shape] in place."""
    for name, grad in grads.items():
        params[name].addcmul_(grad, unsqueeze_like(step, grad), value=-1.0)


def differentiate(
    objective: Callable[[Tensors, Batch], tuple[Tensor, Tensor]], params: Tensors, batch: Batch
) -> tuple[Tensor, Tensors]:
    """Return the loss [n] and the gradient [n, *shape] by the parameters of what is lowered, [n]:
    of a copy of the parameters and of the batch the objective returns both."""
    with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        weight = None if batch.weight is None else batch.weight.clone()
        loss, lowered = objective(leaves, Batch(batch.x.clone(), batch.y.clone(), weight))
        grads = torch.autograd.grad(lowered.sum(), list(leaves.values()))
    return loss.detach(), dict(zip(leaves, grads, strict=True))
