"""Layers that FedHM makes low-rank, and their ranks."""

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
from otafl.models.layer_contract import Unroll, roll_weight, unroll_weight
from otafl.models.layer_lists import iterate_layers
from otafl.models.layers import Conv, Linear
from otafl.models.network import Network, ResizableModel

FRAME = "frame"

Sends = Literal["factors", "product", "tangent"]


@dataclass(frozen=True)
class LowRankLayer:
    """A layer that can be low-rank.

    Parameters
    ----------
    name : str
        Name of the layer.
    shape : tuple of int
        Shape of the weight.
    outputs : int
        Number of output channels.
    sides : tuple of int
        Sides a, b of the weight as a matrix [a, b].
    unroll : {"vertical_first", "horizontal_first"}
        Order of the windows of a low-rank convolution.
    """

    name: str
    shape: tuple[int, ...]
    outputs: int
    sides: tuple[int, int]
    unroll: Unroll

    @property
    def weight(self) -> str:
        """The name of the weight."""
        return f"{self.name}.weight"

    @property
    def pair(self) -> tuple[str, str]:
        """The names of the factors."""
        return f"{self.name}.left", f"{self.name}.right"

    def compute_rank(self, ratio: float) -> int:
        """Compute the rank at a ratio of the output channels."""
        return compute_rank(ratio, self.outputs, self.sides)

    def get_factors(self, tensors: Mapping[str, Tensor]) -> Factors:
        """Return the factors of the layer."""
        left, right = self.pair
        return Factors(tensors[left], tensors[right])

    def to_matrix(self, weight: Tensor) -> Tensor:
        """Reshape a weight [n, *shape] to a matrix [n, a, b]."""
        return unroll_weight(weight, self.unroll)

    def from_matrix(self, matrix: Tensor) -> Tensor:
        """Reshape a matrix [n, a, b] to the weight [n, *shape]."""
        return roll_weight(matrix, self.shape, self.unroll)


class LowRankLayout:
    """Networks of all capacity levels of a model, by FedHM's settings.

    Parameters
    ----------
    settings : FedHm.Settings
        Settings of the method.
    model : Model
        Model at full rank.

    Attributes
    ----------
    dense : Network
        Network at full rank.
    networks : tuple of Network
        Network of each level, from the largest.
    has_dense : bool
        Whether the first level has full rank.
    candidates : tuple of LowRankLayer
        Layers behind the dense prefix.
    layers : dict of str to LowRankLayer
        Those of them that the server factorises in each round, by the names of their weights.
    ranks : dict of str to list of int
        Rank of these layers at each level, that of the frame at the dense level.
    frame : dict of str to tuple of int
        Shapes of their factors at the largest rank.
    sends : {"factors", "product", "tangent"}
        What devices send of them.

    Raises
    ------
    UserError
        If the model cannot be factorised.
    """

    def __init__(self, settings: Any, model: Model) -> None:
        if not isinstance(model, ResizableModel):
            raise UserError(
                "algorithm.name: 'fedhm' needs a model whose layers can have a lower rank; use "
                "mlp, cnn, conv_net, resnet or vgg"
            )
        whole = model.build_network(lambda channels: channels)  # full width and rank
        self.dense = whole.replace(unroll=settings.unroll)
        self.candidates = _select_low_rank_layers(settings, self.dense)
        self.networks = tuple(
            self.dense.replace_ranks(
                {layer.name: layer.compute_rank(ratio) for layer in self.candidates if ratio < 1.0}
            )
            for ratio in settings.levels
        )
        self.has_dense = settings.levels[0] == 1.0
        self.sends: Sends = settings.sends
        factored = self.candidates if settings.rank_ratios else ()
        self.layers = {layer.weight: layer for layer in factored}
        widest = max(settings.rank_ratios, default=1.0)
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
        """The shapes of the broadcast parameters besides the frame.

        Without a dense level these are no weights that are factorised.
        """
        kept = {} if self.has_dense else self.layers
        return {name: shape for name, shape in self.dense.shapes.items() if name not in kept}

    @property
    def uplink_shapes(self) -> Shapes:
        """The shapes of the parameters that all devices send together.

        The second of two coordinates is transposed.
        """
        if self.sends != "tangent":
            return self.dense.shapes
        shapes: Shapes = {}
        for name, shape in self.dense.shapes.items():
            if name not in self.layers:
                shapes[name] = shape
                continue
            left, right = self.layers[name].pair
            rank, columns = self.frame[right]
            shapes |= {left: self.frame[left], right: (columns, rank)}
        return shapes

    def uses_projection(self, capacity_level: int) -> bool:
        """Return whether devices of a level project changes of dense weights on the frame."""
        return self.sends == "tangent" and self.has_dense and capacity_level == 0

    def get_frame_rank(self, layer: LowRankLayer) -> int:
        """Return the largest rank of a layer, that of its frame."""
        return self.frame[layer.pair[0]][1]

    def truncate_to_level(self, capacity_level: int, tensors: Tensors) -> Tensors:
        """Return a level's parameters before training, the first columns of the factors."""
        return {
            name: tensors[name][:, : shape[0], : shape[1]] if name in self.frame else tensors[name]
            for name, shape in self.networks[capacity_level].shapes.items()
        }

    def list_factor_pairs(self, params: Container[str]) -> list[tuple[str, str]]:
        """List the names of the factors among parameters."""
        return [layer.pair for layer in self.candidates if layer.pair[0] in params]

    def factorise_params(self, params: Tensors) -> Tensors:
        """Return the server's state with these parameters, by one SVD for each layer, eq. (18)."""
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
        """Return parameters of these shapes, and the factors of the frame."""
        out = unflatten(tensors[MODEL], shapes)
        return out | (unflatten(tensors[FRAME], self.frame) if self.frame else {})


def _select_low_rank_layers(settings: Any, dense: Network) -> tuple[LowRankLayer, ...]:
    """Return the layers behind the dense prefix of the settings, or else of the network."""
    named = {
        step.name: step for step in iterate_layers(dense.layers) if isinstance(step, Conv | Linear)
    }
    steps = [named[name] for name in dense.factorisable_names]
    prefix = dense.dense_prefix if settings.dense_prefix is None else settings.dense_prefix
    if prefix >= len(steps) and settings.rank_ratios:
        raise UserError(
            f"algorithm.dense_prefix: got {prefix}, which leaves no layer to factorise of "
            f"{len(steps)} factorisable layers; "
            + (f"use {len(steps) - 1} or less" if steps else "use a model with hidden layers")
        )
    return tuple(_make_layer(step, dense) for step in steps[prefix:])


def _make_layer(step: Conv | Linear, dense: Network) -> LowRankLayer:
    sides = step.outputs * step.kernel, step.inputs // step.kernel
    return LowRankLayer(step.name, step.shape, step.outputs, sides, dense.unroll)


def count_frobenius_flops(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """Count the operations of a gradient of `make_frobenius_penalty` for one pair of factors.

    The gradient by U is lambda U (V^T V), that by V has the same form, and both need a Gram matrix.
    Adding it to the gradient of the loss takes two operations a coordinate, as for weight decay.

    Parameters
    ----------
    left, right : tuple of int
        Shapes of the factors.

    Returns
    -------
    float
        Operations.
    """
    (a, rank), b = left, right[1]
    return 4.0 * (a + b) * rank**2


def make_frobenius_penalty(pairs: Collection[tuple[str, str]], decay: Tensor) -> Penalty:
    r"""Make the Frobenius decay of the rows, computed from Gram matrices.

    Parameters
    ----------
    pairs : collection of tuple of str
        Names of the factors U_l, V_l of each layer.
    decay : Tensor [n]
        Weight lambda of each row.

    Returns
    -------
    callable
        Function of parameters [n, *shape] that returns the penalty [n].

    Notes
    -----
    .. math::

        \frac{\lambda}{2} \sum_l \|U_l V_l^T\|_F^2
    """

    def compute_penalty(params: Tensors) -> Tensor:
        factor = 0.5 * decay  # a tensor that autograd may keep
        total = torch.zeros_like(factor)
        for left, right in pairs:
            u, v = params[left], params[right]
            total = total + (torch.bmm(u.mT, u) * torch.bmm(v, v.mT)).sum((1, 2))
        return factor * total

    return compute_penalty
