"""Hold what methods share that keep each layer of a model at a fixed rank.

Blocks of a layer l are "u<l>" [..., M, R], "s<l>" [..., R], "v<l>" [..., N, R].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from otafl.algorithms.parameters import draw_start, make_draw
from otafl.core import settings
from otafl.core.contracts import MODEL, Broadcast, Tensors
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank
from otafl.models import list_layer_sides
from otafl.models.base import Model, Shapes, flatten, unflatten
from otafl.models.layered import LayeredModel, draw_uniform_start

Rank = Annotated[int, Field(ge=1)]

Ranks = Rank | tuple[Rank, ...]
"""It is one rank for every layer, or one for each."""

Sides = Sequence[tuple[int, int]]
"""(inputs, outputs) of each layer's weight."""


class LowRankSettings(settings.Settings):
    """Hold the rank of the layers."""

    rank: Ranks = 4
    """rank R of every layer (clipped to the layer's smaller side), or a list with one rank a
    layer"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        found = find_sides(scenario)
        if found is None:
            return []
        return check_num_ranks(self.rank, found) or _check_rank_bound(self.rank, found)


def find_sides(scenario: Any) -> Sides | None:
    """Return the sides of the layers of a scenario's model; None where only the user's own code or
    the data know, or the data do not fit."""
    data = scenario.data
    if data.input_shape is None or data.classes is None:
        return None
    return list_layer_sides(scenario.model, data.input_shape, data.classes)


def check_num_ranks(rank: Ranks | None, sides: Sides) -> list[Problem]:
    """Say where a list of ranks does not have one for each layer."""
    if not isinstance(rank, tuple) or len(rank) == len(sides):
        return []
    text = (
        f"algorithm.rank: got {list(rank)} for {len(sides)} layers ({_format_sides(sides)}); give "
        "one for each, or one number for all"
    )
    return [Problem(text, ("algorithm", "rank"), _OTHERS)]


def _check_rank_bound(rank: Ranks, sides: Sides) -> list[Problem]:
    """Say which ranks are above the smaller side of their layers."""
    if isinstance(rank, int):
        most = max(min(both) for both in sides)
        if rank <= most:
            return []
        text = (
            f"algorithm.rank: {rank} is above the smaller side of every layer "
            f"({_format_sides(sides)}); at most {most}"
        )
        return [Problem(text, ("algorithm", "rank"), _OTHERS)]
    return [
        Problem(
            f"algorithm.rank[{i}]: {r} is above the smaller side of its layer, {a}x{b}; at most "
            f"{min(a, b)}",
            ("algorithm", "rank", i),
            _OTHERS,
        )
        for i, (r, (a, b)) in enumerate(zip(rank, sides, strict=True))
        if r > min(a, b)
    ]


_OTHERS = (("model",), ("data",))


def _format_sides(sides: Sides) -> str:
    return ", ".join(f"{a}x{b}: {min(a, b)}" for a, b in sides)


def require_layers(model: Model, method: str) -> LayeredModel:
    """Return the model, if it shows its layers. Raises UserError otherwise."""
    if not isinstance(model, LayeredModel):
        raise UserError(
            f"algorithm.name: '{method}' factors the layers of a chain of linear ones, and this "
            "model does not show such a chain; mlp, cnn or softmax_regression would do, or fedavg"
        )
    return model


def expand_rank(rank: Rank | Sequence[Rank], largest: Sequence[int]) -> tuple[int, ...]:
    """Return a rank for each layer, clipped to the largest that it can have. Raises UserError where
    a list has another length."""
    ranks = [rank] * len(largest) if isinstance(rank, int) else rank
    if len(ranks) != len(largest):
        raise UserError(
            f"algorithm.rank: {len(ranks)} ranks for a model of {len(largest)} layers; "
            "one for each, or a single number"
        )
    return tuple(min(pair) for pair in zip(ranks, largest, strict=True))


def compute_ranks(rank: Ranks, model: LayeredModel) -> tuple[int, ...]:
    """Return a rank for each layer, clipped to the layer's smaller side."""
    return expand_rank(rank, [min(layer.inputs, layer.outputs) for layer in model.layers])


def compute_compression(dense: Sequence[int], thin: Sequence[int], middle: int) -> dict[str, float]:
    """Return the shares of the layers' weights that are kept: "compression_actual" of all together,
    and "compression_nominal" of one in the middle."""
    return {
        "compression_actual": sum(thin) / sum(dense),
        "compression_nominal": thin[middle] / dense[middle],
    }


def compute_sides_compression(model: LayeredModel, ranks: tuple[int, ...]) -> dict[str, float]:
    """Return R (M + N) / (M N) as `compute_compression`, of two middle layers the earlier; R / 128
    for sides of 256."""
    dense = [layer.inputs * layer.outputs for layer in model.layers]
    sides = [layer.inputs + layer.outputs for layer in model.layers]
    thin = [rank * both for rank, both in zip(ranks, sides, strict=True)]
    return compute_compression(dense, thin, (len(dense) - 1) // 2)


def draw_start_weights(model: LayeredModel, streams: Streams) -> list[tuple[Tensor, Tensor]]:
    """Return the weight [S, M, N] and bias [S, N] that each layer starts from, before truncation. A
    weight of zero has no rank R: a standard layer stands in for it."""
    params = draw_start(model, streams)
    out = []
    for layer in model.layers:
        weight = params[layer.weight]
        if not weight.any():
            weight = draw_uniform_start((layer,), make_draw(streams))[layer.weight]
        out.append((weight, params[layer.bias]))
    return out


def get_point(tensors: Tensors, layer: int) -> LowRank:
    """Return the point of a layer."""
    return LowRank(tensors[f"u{layer}"], tensors[f"s{layer}"], tensors[f"v{layer}"])


def name_point(layer: int, point: LowRank) -> Tensors:
    """Name the blocks of a layer's point."""
    return {f"u{layer}": point.u, f"s{layer}": point.s, f"v{layer}": point.v}


def broadcast_layers(server: Tensors, shapes: Shapes) -> Broadcast:
    """Broadcast the named blocks side by side, thin ones as they lie: one gather for the rows of a
    chunk."""
    return Broadcast({MODEL: flatten({name: _transpose_thin(server[name]) for name in shapes})})


def unpack_broadcast(broadcast: Broadcast, shapes: Shapes) -> Tensors:
    """Return the blocks that `broadcast_layers` sent. shapes: as they lie."""
    flat = unflatten(broadcast.tensors[MODEL], shapes)
    return {name: _transpose_thin(block) for name, block in flat.items()}


def _transpose_thin(block: Tensor) -> Tensor:
    """Return a thin block [n, M, R] as it lies in memory, [n, R, M], or back; others as is."""
    return block.mT if block.dim() == 3 else block
