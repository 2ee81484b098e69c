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
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Batch, Tensors, Workload
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
    """Frozen model whose weights have adapters.

    Parameters
    ----------
    model : Model
        Model.
    layers : sequence of AdaptedLayer
        Weights with adapters.
    scale : float
        alpha / r.

    Attributes
    ----------
    backbone : dict of str to Tensor [S, *shape], or [1, *shape]
        Parameters that no device trains, of each trial, or of all trials if they are equal.
    """

    def __init__(self, model: Model, layers: Sequence[AdaptedLayer], scale: float) -> None:
        self.model, self.layers, self.scale = model, tuple(layers), scale
        self.backbone: Tensors = {}

    def freeze(self, params: Tensors) -> None:
        """Store parameters [S, *shape] as the backbone, once if they are equal in all trials."""
        same = all(torch.equal(block, block[:1].expand_as(block)) for block in params.values())
        with torch.inference_mode(False):  # autograd saves no inference tensors
            kept = {name: block[:1] if same else block for name, block in params.items()}
            self.backbone = {name: block.clone() for name, block in kept.items()}

    def make_objective(
        self, trial: Tensor, compose: Compose, changes: Tensors
    ) -> Callable[[Tensors, Batch], tuple[Tensor, Tensor]]:
        """Make the training loss as a function of trained tensors and a minibatch.

        Parameters
        ----------
        trial : Tensor, int64 [n]
            Trial of each row of the chunk.
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
        model, maps = self.model, self.model.linear_weights
        with torch.inference_mode(False), torch.no_grad():  # autograd saves no inference tensors
            frozen = {
                name: block if name in maps else block.expand(len(trial), *block.shape[1:]).clone()
                for name, block in self._gather_frozen(trial, changes).items()
            }

        def compute_objective(leaves: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
            head = {name: block for name, block in leaves.items() if name in model.shapes}
            params = self._adapt(frozen | head, compose(leaves), maps)
            loss = model.loss.compute_mean(model.score_batch(params, batch), batch)
            return loss, loss

        return compute_objective

    def merge(self, trial: Tensor, factors: Factors, head: Tensors, changes: Tensors) -> Tensors:
        """Merge adapters into dense parameters.

        Parameters
        ----------
        trial : Tensor, int64 [n]
            Trial of each row.
        factors : Factors
            Adapters of the rows.
        head : dict of str to Tensor [n, *shape]
            Trained parameters of the head.
        changes : dict of str to Tensor [n, M, N]
            Sums that the server has added to frozen weights.

        Returns
        -------
        dict of str to Tensor [n, *shape]
            All parameters, in the order of the model.
        """
        params = self._adapt(self._gather_frozen(trial, changes) | head, factors, ())
        return {n: params[n].expand(len(trial), *params[n].shape[1:]) for n in self.model.shapes}

    def _gather_frozen(self, trial: Tensor, changes: Tensors) -> Tensors:
        """Return the frozen parameters [n or 1, *shape] of rows of trials int64 [n]."""
        frozen: Tensors = {}
        for name, block in self.backbone.items():
            frozen[name] = block if len(block) == 1 else block[trial]
            if name in changes:
                frozen[name] = frozen[name] + to_weight(changes[name], self.model.shapes[name])
        return frozen

    def _adapt(self, params: Tensors, factors: Factors, maps: Container[str]) -> dict[str, Any]:
        """Return parameters with adapters: of weights in `maps` as products of their own."""
        adapted: dict[str, Any] = dict(params)
        for name, (a, b) in factors.items():
            if name in maps:
                adapted[name] = AdaptedWeight(params[name], a, b, self.scale)
            else:
                product = to_weight(compute_product(a, b), self.model.shapes[name])
                adapted[name] = params[name] + self.scale * product
        return adapted


def count_adapter_flops(
    model: Model,
    layers: Sequence[AdaptedLayer],
    head: Sequence[str],
    trained: str,
    workload: Workload,
) -> np.ndarray:
    """Count the operations of the local work of devices.

    A sample takes a forward pass, a backward pass down to the first adapter without gradients by
    frozen weights, the adapters' own products, and the gradient by the head. A step takes two
    operations for each trained coordinate, and a round one, for the increment.

    Parameters
    ----------
    model : Model
        Model.
    layers : sequence of AdaptedLayer
        Layers with adapters.
    head : sequence of str
        Trained parameters of the head.
    trained : str
        Tensors that a device trains, as in `lora_factors.Roles`.
    workload : Workload
        Steps, batch size and samples.

    Returns
    -------
    ndarray
        Operations, in the shape of `workload.num_samples`.
    """
    names = list(model.linear_weights) or list(model.shapes)
    first = min((layer.weight for layer in layers), key=names.index, default="")
    coordinates, of_sample, of_step = 0, _count_frozen_passes(model, first), 0.0
    for layer in layers:
        sides = {"A": layer.inputs, "B": layer.outputs, "R": layer.rank}
        coordinates += layer.rank * sum(sides[part.upper()] for part in trained)
        of_sample += layer.positions * _count_passes(layer, trained, layer.weight != first)
        if trained in ("R", "ab"):  # B R and its gradient by R, or the projection of that by b
            of_step += 4.0 * layer.outputs * layer.rank**2
    for name in head:
        size = math.prod(model.shapes[name])
        coordinates += size
        if len(model.shapes[name]) >= 2:
            of_sample += 2.0 * model.count_products(name) * size
    of_step += 2.0 * coordinates
    samples = workload.effective_batch_size
    return workload.num_steps * (of_sample * samples + of_step) + 1.0 * coordinates


def _count_passes(layer: AdaptedLayer, trained: str, has_below: bool) -> float:
    """Count the operations of an adapter in both passes of a sample, without the frozen weight."""
    by_a, by_b = 2.0 * layer.rank * layer.inputs, 2.0 * layer.rank * layer.outputs
    forward, inner, by_input = by_a + by_b, by_b, by_a  # inner is g B, and by_input B A of it
    if trained == "ab":  # factors of rank 2 r, half of which are trained
        below = inner + 2.0 * by_input
        return 2.0 * forward + inner + by_a + by_b + below * has_below
    total = forward + by_input * has_below + inner * ("A" in trained or has_below)
    return total + by_a * ("A" in trained) + by_b * (trained != "A")


def _count_frozen_passes(model: Model, first: str) -> float:
    """Count the operations of both passes of a sample, without gradients by frozen weights.

    first: the first weight with an adapter, below which no gradient is needed.
    """
    if not first:  # the head alone: a forward pass, and no backward pass below the head
        return 2.0 * model.macs + 1.0 * model.elementwise
    macs = {
        name: model.count_products(name) * inputs * outputs
        for name, (inputs, outputs) in model.linear_weights.items()
    }
    if not macs:  # the model does not tell its layers: all gradients
        return 6.0 * model.macs - 2.0 * model.first_macs + 2.0 * model.elementwise
    names = list(macs)
    above = sum(macs[name] for name in names[names.index(first) + 1 :])
    others = model.macs - sum(macs.values())  # products of two inputs, as in attention
    return 2.0 * model.macs + 2.0 * above + 4.0 * others + 2.0 * model.elementwise
