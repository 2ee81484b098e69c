"""Hold what methods share that keep each layer of a model at a fixed rank.

Blocks of a layer l are "u<l>" [..., M, R], "s<l>" [..., R], "v<l>" [..., N, R].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from otafl.algorithms.parameters import draws, start
from otafl.core import settings
from otafl.core.contracts import MODEL, Broadcast, Tensors
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank
from otafl.models import sides
from otafl.models.base import Model, Shapes, flatten, unflatten
from otafl.models.layered import LayeredModel, uniform_start

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
        found = sides_of(scenario)
        if found is None:
            return []
        return one_each(self.rank, found) or _too_large(self.rank, found)


def sides_of(scenario: Any) -> Sides | None:
    """Return the sides of the layers of a scenario's model; None where only the user's own code or
    the data know, or the data do not fit."""
    data = scenario.data
    if data.input_shape is None or data.classes is None:
        return None
    return sides(scenario.model, data.input_shape, data.classes)


def one_each(rank: Ranks | None, of: Sides) -> list[Problem]:
    """Say where a list of ranks does not have one for each layer."""
    if not isinstance(rank, tuple) or len(rank) == len(of):
        return []
    text = (
        f"algorithm.rank: got {list(rank)} for {len(of)} layers ({_listed(of)}); give one "
        "for each, or one number for all"
    )
    return [Problem(text, ("algorithm", "rank"), _OTHERS)]


def _too_large(rank: Ranks, of: Sides) -> list[Problem]:
    """Say which ranks are above the smaller side of their layers."""
    if isinstance(rank, int):
        most = max(min(both) for both in of)
        if rank <= most:
            return []
        text = (
            f"algorithm.rank: {rank} is above the smaller side of every layer ({_listed(of)}); "
            f"at most {most}"
        )
        return [Problem(text, ("algorithm", "rank"), _OTHERS)]
    return [
        Problem(
            f"algorithm.rank[{i}]: {r} is above the smaller side of its layer, {a}x{b}; at most "
            f"{min(a, b)}",
            ("algorithm", "rank", i),
            _OTHERS,
        )
        for i, (r, (a, b)) in enumerate(zip(rank, of, strict=True))
        if r > min(a, b)
    ]


_OTHERS = (("model",), ("data",))


def _listed(of: Sides) -> str:
    return ", ".join(f"{a}x{b}: {min(a, b)}" for a, b in of)


def layered(model: Model, method: str) -> LayeredModel:
    """Return the model, if it shows its layers. Raises UserError otherwise."""
    if not isinstance(model, LayeredModel):
        raise UserError(
            f"algorithm.name: '{method}' factors the layers of a chain of linear ones, and this "
            "model does not show such a chain; mlp, cnn or softmax_regression would do, or fedavg"
        )
    return model


def each_rank(rank: Rank | Sequence[Rank], largest: Sequence[int]) -> tuple[int, ...]:
    """Return a rank for each layer, clipped to the largest that it can have. Raises UserError where
    a list has another length."""
    ranks = [rank] * len(largest) if isinstance(rank, int) else rank
    if len(ranks) != len(largest):
        raise UserError(
            f"algorithm.rank: {len(ranks)} ranks for a model of {len(largest)} layers; "
            "one for each, or a single number"
        )
    return tuple(min(pair) for pair in zip(ranks, largest, strict=True))


def ranks_of(rank: Ranks, model: LayeredModel) -> tuple[int, ...]:
    """Return a rank for each layer, clipped to the layer's smaller side."""
    return each_rank(rank, [min(layer.inputs, layer.outputs) for layer in model.layers])


def compression(dense: Sequence[int], thin: Sequence[int], middle: int) -> dict[str, float]:
    """Return the shares of the layers' weights that are kept: "compression_actual" of all together,
    and "compression_nominal" of one in the middle."""
    return {
        "compression_actual": sum(thin) / sum(dense),
        "compression_nominal": thin[middle] / dense[middle],
    }


def of_sides(model: LayeredModel, ranks: tuple[int, ...]) -> dict[str, float]:
    """Return R (M + N) / (M N) as `compression`, of two middle layers the earlier; R / 128 for
    sides of 256."""
    dense = [layer.inputs * layer.outputs for layer in model.layers]
    sides = [layer.inputs + layer.outputs for layer in model.layers]
    thin = [rank * both for rank, both in zip(ranks, sides, strict=True)]
    return compression(dense, thin, (len(dense) - 1) // 2)


def start_weights(model: LayeredModel, streams: Streams) -> list[tuple[Tensor, Tensor]]:
    """Return the weight [S, M, N] and bias [S, N] that each layer starts from, before truncation. A
    weight of zero has no rank R: a standard layer stands in for it."""
    params = start(model, streams)
    out = []
    for layer in model.layers:
        weight = params[layer.weight]
        if not weight.any():
            weight = uniform_start((layer,), draws(streams))[layer.weight]
        out.append((weight, params[layer.bias]))
    return out


def point(blocks: Tensors, layer: int) -> LowRank:
    """Return the point of a layer."""
    return LowRank(blocks[f"u{layer}"], blocks[f"s{layer}"], blocks[f"v{layer}"])


def point_blocks(layer: int, of: LowRank) -> Tensors:
    """Name the blocks of a layer's point."""
    return {f"u{layer}": of.u, f"s{layer}": of.s, f"v{layer}": of.v}


def sent_down(server: Tensors, shapes: Shapes) -> Broadcast:
    """Broadcast the named blocks side by side, thin ones as they lie: one gather for the rows of a
    chunk."""
    return Broadcast({MODEL: flatten({name: _as_lies(server[name]) for name in shapes})})


def received_blocks(broadcast: Broadcast, shapes: Shapes) -> Tensors:
    """Return the blocks that `sent_down` sent. shapes: as they lie."""
    flat = unflatten(broadcast.blocks[MODEL], shapes)
    return {name: _as_lies(block) for name, block in flat.items()}


def _as_lies(block: Tensor) -> Tensor:
    """Return a thin block [n, M, R] as it lies in memory, [n, R, M], or back; others as is."""
    return block.mT if block.dim() == 3 else block
