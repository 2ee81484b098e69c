"""Say which layers of a model FedHM makes low-rank, and at which ranks."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from otafl.algorithms.submodel_training import Penalty
from otafl.core.contracts import MODEL, Tensors
from otafl.core.errors import UserError
from otafl.factorised import truncation
from otafl.factorised.truncation import Factors, compute_rank
from otafl.models.base import Model, Shapes, flatten, unflatten
from otafl.models.layer_steps import Conv, Linear, Unroll, iterate_steps
from otafl.models.network import Network, ResizableModel, roll_weight, unroll_weight

FRAME = "frame"

Sends = Literal["factors", "product", "tangent"]


@dataclass(frozen=True)
class LowRankLayer:
    """A layer that can be low-rank has a weight of this shape, which as a matrix [a, b] has
    `sides`."""

    name: str
    shape: tuple[int, ...]
    outputs: int
    sides: tuple[int, int]
    unroll: Unroll

    @property
    def weight(self) -> str:
        """Name the weight."""
        return f"{self.name}.weight"

    @property
    def pair(self) -> tuple[str, str]:
        """Name the factors."""
        return f"{self.name}.left", f"{self.name}.right"

    def compute_rank(self, ratio: float) -> int:
        """Return the rank at a ratio of the output channels."""
        return compute_rank(ratio, self.outputs, self.sides)

    def get_factors(self, tensors: Mapping[str, Tensor]) -> Factors:
        """Return the factors among these blocks."""
        left, right = self.pair
        return Factors(tensors[left], tensors[right])

    def to_matrix(self, weight: Tensor) -> Tensor:
        """Return a weight [n, *shape] as a matrix [n, a, b]."""
        return unroll_weight(weight, self.unroll)

    def from_matrix(self, matrix: Tensor) -> Tensor:
        """Return a matrix [n, a, b] as the weight [n, *shape]."""
        return roll_weight(matrix, self.shape, self.unroll)


class LowRankLayout:
    """Cuts a model into a network for each level, as FedHM's settings say. Raises UserError where
    it cannot be.

    dense: at full rank. network: the server's, the dense one; with homogeneous_mode: factor the
    low-rank one. networks: of each level, the largest first. has_dense: the first is of full rank.
    candidates: the layers behind the dense prefix. layers: of these, by the names of their weights,
    those that the server factors in each round. ranks: of these, at each level (the frame's at the
    dense one). frame: shapes of their factors at the largest rank. sends: what devices send of
    them.
    """

    def __init__(self, settings: Any, model: Model) -> None:
        self.dense = _build_dense_network(settings.unroll, model)
        self.candidates = _select_low_rank_layers(settings, self.dense)
        averages_factors = settings.homogeneous_mode == "factor"
        self.networks = tuple(
            self.dense.replace_ranks(
                {layer.name: layer.compute_rank(ratio) for layer in self.candidates if ratio < 1.0}
            )
            for ratio in settings.levels
        )
        self.network = self.networks[0] if averages_factors else self.dense
        self.has_dense = settings.levels[0] == 1.0
        self.sends: Sends = "product" if averages_factors else settings.sends
        factored = self.candidates if settings.rank_ratios and not averages_factors else ()
        self.layers = {layer.weight: layer for layer in factored}
        widest = settings.frame_ratio or max(settings.rank_ratios, default=1.0)
        self.ranks: dict[str, list[int]] = {}
        self.frame: Shapes = {}
        for layer in factored:
            (left, right), rank = layer.pair, layer.compute_rank(widest)
            self.frame |= {left: (layer.sides[0], rank), right: (rank, layer.sides[1])}
            self.ranks[layer.weight] = [
                layer.compute_rank(ratio) if ratio < 1.0 else rank for ratio in settings.levels
            ]

    @property
    def downlink_shapes(self) -> Shapes:
        """Return the shapes of what is broadcast beside the frame: without a dense level, no weight
        that is factored."""
        kept = {} if self.has_dense else self.layers
        return {name: shape for name, shape in self.network.shapes.items() if name not in kept}

    @property
    def uplink_shapes(self) -> Shapes:
        """Return the shapes of what all devices send together; of coordinates the second is
        transposed."""
        if self.sends != "tangent":
            return self.network.shapes
        shapes: Shapes = {}
        for name, shape in self.network.shapes.items():
            if name not in self.layers:
                shapes[name] = shape
                continue
            left, right = self.layers[name].pair
            rank, columns = self.frame[right]
            shapes |= {left: self.frame[left], right: (columns, rank)}
        return shapes

    def uses_projection(self, capacity_level: int) -> bool:
        """Say whether devices of a level project changes of dense weights on the frame."""
        return self.sends == "tangent" and self.has_dense and capacity_level == 0

    def get_frame_rank(self, layer: LowRankLayer) -> int:
        """Return the largest rank of a layer, that of its frame."""
        return self.frame[layer.pair[0]][1]

    def truncate_to_level(self, capacity_level: int, tensors: Tensors) -> Tensors:
        """Return a level's parameters before training: of factors the first of its rank."""
        return {
            name: tensors[name][:, : shape[0], : shape[1]] if name in self.frame else tensors[name]
            for name, shape in self.networks[capacity_level].shapes.items()
        }

    def list_factor_pairs(self, params: Container[str]) -> list[tuple[str, str]]:
        """Name the factors among these parameters."""
        return [layer.pair for layer in self.candidates if layer.pair[0] in params]

    def factorise_params(self, params: Tensors) -> Tensors:
        """Return the server's blocks with these parameters. One SVD a layer and round. Eq. (18)."""
        if not self.layers:
            return {MODEL: flatten(params)}
        frame: Tensors = {}
        for layer in self.layers.values():
            both = truncation.factorise(
                layer.to_matrix(params[layer.weight]), self.get_frame_rank(layer)
            )
            frame |= dict(zip(layer.pair, both, strict=True))
        return {MODEL: flatten(params), FRAME: flatten(frame)}

    def unflatten_params(self, tensors: Tensors, shapes: Shapes) -> Tensors:
        """Return the parameters, of these shapes, and factors that lie side by side in blocks."""
        out = unflatten(tensors[MODEL], shapes)
        return out | (unflatten(tensors[FRAME], self.frame) if self.frame else {})


def _build_dense_network(unroll: Unroll, model: Model) -> Network:
    """Return the model at full width and rank."""
    if not isinstance(model, ResizableModel):
        raise UserError(
            "algorithm.name: 'fedhm' cuts the rank of a network's layers, and the model is not one "
            "that can be cut; mlp, cnn, conv_net, resnet or vgg would do"
        )
    whole = model.build_network(lambda channels: channels)
    return whole.replace_unroll(unroll)


def _select_low_rank_layers(settings: Any, dense: Network) -> tuple[LowRankLayer, ...]:
    """Return the layers behind the dense prefix, the settings' or else the network's own."""
    named = {
        step.name: step for step in iterate_steps(dense.steps) if isinstance(step, Conv | Linear)
    }
    steps = [named[name] for name in dense.factorisable_names]
    prefix = dense.dense_prefix if settings.dense_prefix is None else settings.dense_prefix
    if prefix >= len(steps) and settings.rank_ratios:
        raise UserError(
            f"algorithm.dense_prefix: {prefix} leaves nothing to be factorised of a model with "
            f"{len(steps)} layers that could be; "
            + (f"{len(steps) - 1} or less would do" if steps else "one with hidden layers would do")
        )
    return tuple(_make_layer(step, dense) for step in steps[prefix:])


def _make_layer(step: Conv | Linear, dense: Network) -> LowRankLayer:
    k, repeat = (step.kernel, 1) if isinstance(step, Conv) else (1, step.repeat)
    sides = step.outputs * k, step.inputs * repeat * k
    shape = dense.shapes[f"{step.name}.weight"]
    return LowRankLayer(step.name, shape, step.outputs, sides, dense.unroll)


def count_frobenius_flops(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """Count the operations of a gradient of `make_frobenius_penalty` by the factors of a pair,
    lambda U (V^T V) and the other, with both Gram matrices; adding it to theirs is two operations a
    number, like the weight decay that it stands for."""
    (a, rank), b = left, right[1]
    return 4.0 * (a + b) * rank**2


def make_frobenius_penalty(pairs: Collection[tuple[str, str]], decay: Tensor) -> Penalty:
    """Return the penalty lambda/2 sum_l |U_l V_l^T|_F^2 of the rows, by their Gram matrices; decay:
    lambda [n]."""

    def compute_penalty(params: Tensors) -> Tensor:
        factor = 0.5 * decay  # a tensor that autograd may keep
        total = torch.zeros_like(factor)
        for left, right in pairs:
            u, v = params[left], params[right]
            total = total + (torch.bmm(u.mT, u) * torch.bmm(v, v.mT)).sum((1, 2))
        return factor * total

    return compute_penalty
