"""Steps of methods that keep each layer of a model at a fixed rank.

The tensors of a layer l are "u<l>" [..., M, R], "s<l>" [..., R], "v<l>" [..., N, R].
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from otafl.algorithms.parameters import draw_start, make_draw
from otafl.core import settings
from otafl.core.contracts import MODEL, Broadcast, Tensors
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank
from otafl.models import list_layer_sides
from otafl.models.base import Model, Shapes, flatten, unflatten
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import draw_uniform_start

Rank = Annotated[int, Field(ge=1)]

Ranks = Rank | tuple[Rank, ...]
"""One rank for every layer, or one for each."""


class LowRankSettings(settings.Settings):
    """Settings of methods with low-rank layers."""

    rank: Ranks = 4
    """rank R of every layer, clipped to the layer's smaller side, or a list with one rank for each
    layer"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        return find_rank_problems(scenario, self.rank, is_bounded=True)


def find_rank_problems(
    scenario: Any, rank: Ranks | None, is_bounded: bool = False
) -> Iterator[Problem]:
    """Yield the problems of a method's ranks, if the scenario determines its layers.

    Parameters
    ----------
    scenario : Scenario
        Loaded scenario.
    rank : int or tuple of int, optional
        Rank of every layer, or of each.
    is_bounded : bool
        Whether no rank is above the smaller side of its layer, or of all for one number.

    Yields
    ------
    Problem
        A list of another length, or ranks above their bound.
    """
    data = scenario.data
    if rank is None or data.input_shape is None or data.classes is None:
        return
    sides = list_layer_sides(scenario.model, data.input_shape, data.classes)
    if sides is None:
        return
    most = [min(both) for both in sides]
    of_sides = ", ".join(f"{a}x{b}: {min(a, b)}" for a, b in sides)
    if isinstance(rank, tuple) and len(rank) != len(sides):
        text = f"got {list(rank)} for {len(sides)} layers ({of_sides}); give one rank for each "
        yield make_problem(f"{text}layer, or one number for all", "algorithm.rank", "model", "data")
    elif is_bounded and isinstance(rank, tuple) and any(map(operator.gt, rank, most)):
        text = f"got {list(rank)}, which is above the smaller side of a layer ({of_sides}); use at "
        yield make_problem(f"{text}most {most}", "algorithm.rank", "model", "data")
    elif is_bounded and isinstance(rank, int) and rank > max(most):
        text = f"got {rank}, which is above the smaller side of every layer ({of_sides}); use at "
        yield make_problem(f"{text}most {max(most)}", "algorithm.rank", "model", "data")


def require_layers(model: Model, method: str) -> LayeredModel:
    """Return the model, if it is a chain of linear layers.

    Parameters
    ----------
    model : Model
        Model.
    method : str
        Name of the method, for the message.

    Returns
    -------
    LayeredModel
        The same model.

    Raises
    ------
    UserError
        If the model is not a chain of linear layers.
    """
    if not isinstance(model, LayeredModel):
        raise UserError(
            f"algorithm.name: '{method}' needs a model that is a chain of linear layers; use mlp, "
            "cnn or softmax_regression, or algorithm: fedavg"
        )
    return model


def expand_rank(rank: Rank | Sequence[Rank], largest: Sequence[int]) -> tuple[int, ...]:
    """Expand ranks to one for each layer, clipped to the largest possible.

    Parameters
    ----------
    rank : int or sequence of int
        Rank of every layer, or of each.
    largest : sequence of int
        Largest rank of each layer.

    Returns
    -------
    tuple of int
        Ranks.

    Raises
    ------
    UserError
        If a list has another length.
    """
    ranks = [rank] * len(largest) if isinstance(rank, int) else rank
    if len(ranks) != len(largest):
        raise UserError(
            f"algorithm.rank: got {len(ranks)} ranks for {len(largest)} layers; give one rank for "
            "each layer, or one number for all"
        )
    return tuple(min(pair) for pair in zip(ranks, largest, strict=True))


def compute_ranks(rank: Ranks, model: LayeredModel) -> tuple[int, ...]:
    """Return a rank for each layer, clipped to the layer's smaller side."""
    return expand_rank(rank, [min(layer.inputs, layer.outputs) for layer in model.layers])


def compute_compression(dense: Sequence[int], thin: Sequence[int], middle: int) -> dict[str, float]:
    """Compute the shares of the weights that low-rank layers have.

    Parameters
    ----------
    dense, thin : sequence of int
        Coordinates of each layer's weight, and of its factors.
    middle : int
        Index of a layer in the middle.

    Returns
    -------
    dict of str to float
        "compression_actual" of all layers, and "compression_nominal" of the middle one.
    """
    return {
        "compression_actual": sum(thin) / sum(dense),
        "compression_nominal": thin[middle] / dense[middle],
    }


def compute_sides_compression(model: LayeredModel, ranks: tuple[int, ...]) -> dict[str, float]:
    """Compute R (M + N) / (M N) as `compute_compression`, for the earlier of two middle layers.

    It is R / 128 for sides of 256.
    """
    dense = [layer.inputs * layer.outputs for layer in model.layers]
    sides = [layer.inputs + layer.outputs for layer in model.layers]
    thin = [rank * both for rank, both in zip(ranks, sides, strict=True)]
    return compute_compression(dense, thin, (len(dense) - 1) // 2)


def draw_start_weights(model: LayeredModel, streams: Streams) -> list[tuple[Tensor, Tensor]]:
    """Draw the start of each layer before truncation.

    A weight of zero has no rank R, so the start of a standard layer replaces it.

    Parameters
    ----------
    model : LayeredModel
        Model.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    list of tuple of Tensor [S, M, N], [S, N]
        Weight and bias of each layer.
    """
    params = draw_start(model, streams)
    out = []
    for layer in model.layers:
        weight = params[layer.weight]
        if not weight.any():
            weight = draw_uniform_start((layer,), make_draw(streams))[layer.weight]
        out.append((weight, params[layer.bias]))
    return out


def get_point(tensors: Tensors, layer: int) -> LowRank:
    """Return the low-rank point of a layer."""
    return LowRank(tensors[f"u{layer}"], tensors[f"s{layer}"], tensors[f"v{layer}"])


def name_point(layer: int, point: LowRank) -> Tensors:
    """Return the tensors of a layer's point by their names."""
    return {f"u{layer}": point.u, f"s{layer}": point.s, f"v{layer}": point.v}


def broadcast_layers(server: Tensors, shapes: Shapes) -> Broadcast:
    """Broadcast tensors side by side, thin ones in their memory layout.

    Then one gather serves the rows of a chunk.
    """
    return Broadcast({MODEL: flatten({name: _transpose_thin(server[name]) for name in shapes})})


def unpack_broadcast(broadcast: Broadcast, shapes: Shapes) -> Tensors:
    """Return the tensors of `broadcast_layers`, with shapes in their memory layout."""
    flat = unflatten(broadcast.tensors[MODEL], shapes)
    return {name: _transpose_thin(block) for name, block in flat.items()}


def _transpose_thin(block: Tensor) -> Tensor:
    """Transpose a thin tensor [n, M, R] to its memory layout [n, R, M], or back.

    Other tensors are returned as they are.
    """
    return block.mT if block.dim() == 3 else block
