"""Low-rank adapters on frozen weights: their layers, products, gradients and operations.

A weight W [M, N] of M inputs and N outputs acts as x W. An adapter adds to it the transpose of

    (alpha / r) B A,  A [r, M], B [N, r],

which are the shapes of PEFT. The frozen weight is stored once for all devices, and multiplies the
inputs of all rows that share it in one product. Only the thin factors have a row for each device.

References
----------
Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", ICLR, eq. (3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otafl.core.contracts import Batch, Cohort, Tensors
from otafl.core.errors import UserError
from otafl.core.suggestions import make_unknown_name_error
from otafl.models.base import Model
from otafl.models.linear_layer import apply, apply_transposed

ATTENTION = ("query", "value")
"""Parts of the names of the weights that have adapters by default, if a model has such weights."""

BASIS_SAMPLES = 1024
"""Samples of the gradient whose singular vectors are common factors."""

Factors = dict[str, tuple[Tensor, Tensor]]
"""Name of a weight -> A [n, r, M] and B [n, N, r], without the scale."""

Compose = Callable[[Tensors], Factors]
"""Function that makes the factors of all weights from the trained tensors."""


class AdaptedLayer(NamedTuple):
    """Weight with an adapter.

    Parameters
    ----------
    weight : str
        Name of the weight.
    inputs, outputs : int
        Sides M and N of the weight as a matrix.
    rank : int
        Rank r.
    positions : int
        Number of products with the weight for one sample.
    """

    weight: str
    inputs: int
    outputs: int
    rank: int
    positions: int


class AdaptedWeight:
    r"""Frozen weight with an adapter of each row; it is a `models.linear_layer.LinearMap`.

    Parameters
    ----------
    frozen : Tensor [1, M, N], or [n, M, N]
        Weight W_0, transposed in the equation.
    a : Tensor [n, r, M]
        A.
    b : Tensor [n, N, r]
        B.
    scale : float
        alpha / r.

    Notes
    -----
    .. math::

        W = W_0 + \frac{\alpha}{r} B A
    """

    def __init__(self, frozen: Tensor, a: Tensor, b: Tensor, scale: float) -> None:
        self.frozen, self.a, self.b, self.scale = frozen, a, b, scale

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.bmm(x.expand(len(self.a), -1, -1), self.a.mT)
        return torch.baddbmm(apply(self.frozen, x), inner, self.b.mT, alpha=self.scale)

    def backward(self, g: Tensor) -> Tensor:
        inner = torch.bmm(g, self.b)
        return torch.baddbmm(apply_transposed(self.frozen, g), inner, self.a, alpha=self.scale)


@dataclass(frozen=True)
class Backbone:
    """Parameters that no device trains.

    Parameters
    ----------
    params : dict of str to Tensor [S, *shape], or [1, *shape]
        Parameters of each trial, or of all trials if their starts are equal.
    """

    params: Tensors

    @staticmethod
    def store(params: Tensors) -> Backbone:
        """Store parameters [S, *shape], once if they are equal in all trials."""
        same = all(torch.equal(block, block[:1].expand_as(block)) for block in params.values())
        with torch.inference_mode(False):  # autograd saves no inference tensors
            kept = {name: block[:1] if same else block for name, block in params.items()}
            return Backbone({name: block.clone() for name, block in kept.items()})

    def gather(self, name: str, trial: Tensor) -> Tensor:
        """Return a parameter of each row's trial, [n, *shape], for `trial` int64 [n]."""
        block = self.params[name]
        return block.expand(len(trial), *block.shape[1:]) if len(block) == 1 else block[trial]


def list_linear_weights(model: Model) -> dict[str, tuple[int, int]]:
    """List the weights of a model that act as matrices, and their sides (inputs, outputs).

    A convolution of k x k windows of C channels has k k C inputs.
    """
    if model.linear_weights:
        return dict(model.linear_weights)
    sides = {}
    for name, shape in model.shapes.items():
        if len(shape) == 2:
            sides[name] = (shape[0], shape[1])
        elif len(shape) == 4:
            sides[name] = (math.prod(shape[1:]), shape[0])
    return sides


def select_targets(
    model: Model, targets: Sequence[str] | None, head: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Select the weights that have adapters, and their sides.

    Parameters
    ----------
    model : Model
        Model.
    targets : sequence of str, optional
        Names of weights, or parts of names between dots. If not given, the query and value weights
        of attention, and all weights outside the head in a model without attention.
    head : sequence of str
        Parameters of the head.

    Returns
    -------
    dict of str to tuple of int
        Sides (inputs, outputs) of the weights.

    Raises
    ------
    UserError
        If a target is no weight, or no weight is left.
    """
    weights = list_linear_weights(model)
    if targets is None:
        inner = {name: sides for name, sides in weights.items() if name not in head}
        attention = {n: s for n, s in inner.items() if any(map(n.split(".").count, ATTENTION))}
        if not inner:
            raise UserError(
                "algorithm.targets: the model has no linear or convolution layer before its head "
                "that is trained; use another model, such as mlp, or algorithm.head: frozen"
            )
        return attention or inner
    chosen: dict[str, tuple[int, int]] = {}
    for target in targets:
        found = {n: s for n, s in weights.items() if target == n or target in n.split(".")}
        if not found:
            parts = {part for name in weights for part in (name, *name.split("."))}
            raise make_unknown_name_error(
                f"algorithm.targets: {target}", "a layer of the model", target, sorted(parts)
            )
        chosen |= found
    return {name: weights[name] for name in weights if name in chosen}


def compute_product(a: Tensor, b: Tensor) -> Tensor:
    """Compute B A as a matrix [n, M, N] of inputs and outputs."""
    return torch.bmm(a.mT, b.mT)


def to_weight(matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshape matrices [n, M, N] to weights [n, *shape]; a convolution's has the outputs first."""
    return matrix if len(shape) == 2 else matrix.mT.reshape(-1, *shape)


def to_matrix(weight: Tensor) -> Tensor:
    """Reshape weights [n, *shape] to matrices [n, M, N] of inputs and outputs."""
    return weight if weight.dim() == 3 else weight.flatten(2).mT


def compute_pretraining_gradients(model: Model, params: Tensors, x: Tensor, y: Tensor) -> Tensors:
    """Compute gradients on samples that the server holds.

    Parameters
    ----------
    model : Model
        Model.
    params : dict of str to Tensor [S, *shape]
        Parameters.
    x : Tensor [n, *input]
        Samples, of which the first 1,024 count.
    y : Tensor [n, ...]
        Labels.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Gradients.
    """
    like, rows = next(iter(params.values())), len(next(iter(params.values())))
    x, y = x[:BASIS_SAMPLES].to(like), y[:BASIS_SAMPLES].to(like.device)
    y = y.to(like) if y.is_floating_point() else y
    batch = Batch(x.expand(rows, *x.shape), y.expand(rows, *y.shape), None)
    return model.compute_gradients(model.copy_trainable(params), batch)[1]


class AdaptedModel:
    """Model whose parameters are a backbone, adapters and a head.

    Parameters
    ----------
    model : Model
        Model.
    layers : sequence of AdaptedLayer
        Weights with adapters.
    scale : float
        alpha / r.
    """

    def __init__(self, model: Model, layers: Sequence[AdaptedLayer], scale: float) -> None:
        self.model, self.layers, self.scale = model, tuple(layers), scale
        self._uses_maps = bool(model.linear_weights)
        self._weights = list_linear_weights(model)

    def make_objective(
        self, backbone: Backbone, rows: Cohort, compose: Compose, changes: Tensors
    ) -> Callable[[Tensors, Batch], tuple[Tensor, Tensor]]:
        """Make the training loss as a function of trained tensors and a minibatch.

        Parameters
        ----------
        backbone : Backbone
            Frozen parameters.
        rows : Cohort
            Rows of the chunk.
        compose : Compose
            Function that makes the factors from the trained tensors.
        changes : dict of str to Tensor [n, M, N]
            Sums that the server has added to frozen weights, by the name of the weight.

        Returns
        -------
        callable
            Function of trained tensors and a minibatch that returns the loss [n] twice, for
            `models.base.differentiate`. Trained parameters of the head have their own names.
        """
        with torch.inference_mode(False), torch.no_grad():  # autograd saves no inference tensors
            frozen = self._gather_frozen(backbone, rows, changes)
        model = self.model

        def compute_objective(leaves: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
            head = {name: block for name, block in leaves.items() if name in model.shapes}
            params = self._adapt(frozen | head, compose(leaves))
            loss = model.loss.compute_mean(model.score_batch(params, batch), batch)
            return loss, loss

        return compute_objective

    def merge(
        self, backbone: Backbone, trial: Tensor, factors: Factors, others: Tensors, changes: Tensors
    ) -> Tensors:
        """Merge adapters into dense parameters.

        Parameters
        ----------
        backbone : Backbone
            Frozen parameters.
        trial : Tensor, int64 [n]
            Trial of each row.
        factors : Factors
            Adapters of the rows.
        others : dict of str to Tensor [n, *shape]
            Parameters of the head.
        changes : dict of str to Tensor [n, M, N]
            Sums that the server has added to frozen weights.

        Returns
        -------
        dict of str to Tensor [n, *shape]
            All parameters, in the order of the model.
        """
        params: Tensors = {}
        for name in self.model.shapes:
            params[name] = others[name] if name in others else backbone.gather(name, trial)
        for layer in self.layers:
            matrix = self.scale * compute_product(*factors[layer.weight])
            if layer.weight in changes:
                matrix = matrix + changes[layer.weight]
            name = layer.weight
            params[name] = params[name] + to_weight(matrix, self.model.shapes[name])
        return params

    def _gather_frozen(self, backbone: Backbone, rows: Cohort, changes: Tensors) -> dict[str, Any]:
        """Return the frozen parameters of the rows, of linear weights as maps if possible."""
        frozen: dict[str, Any] = {}
        for name in backbone.params:
            if self._uses_maps and name in self._weights:
                block = backbone.params[name]  # one product for all rows if trials share it
                frozen[name] = block if len(block) == 1 else block[rows.trial]
                if name in changes:
                    frozen[name] = frozen[name] + changes[name]
            else:
                frozen[name] = backbone.gather(name, rows.trial).clone()
                if name in changes:
                    frozen[name] += to_weight(changes[name], self.model.shapes[name])
        return frozen

    def _adapt(self, frozen: Mapping[str, Any], factors: Factors) -> dict[str, Any]:
        """Return parameters with adapters on their weights."""
        params = dict(frozen)
        for layer in self.layers:
            a, b = factors[layer.weight]
            base = params[layer.weight]
            if self._uses_maps:
                params[layer.weight] = AdaptedWeight(base, a, b, self.scale)
            else:
                dense = to_weight(compute_product(a, b), self.model.shapes[layer.weight])
                params[layer.weight] = base + self.scale * dense
        return params
