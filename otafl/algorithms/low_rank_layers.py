"""What methods share that keep each layer of a model at a fixed rank: blocks "u<l>" [..., M, R],
"s<l>" [..., R], "v<l>" [..., N, R] of each layer l."""

from __future__ import annotations

from torch import Tensor

from otafl.algorithms.whole_models import draws, start
from otafl.core.contracts import Blocks
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank
from otafl.models.base import LayeredModel, Model, uniform_start


def layered(model: Model, method: str) -> LayeredModel:
    """The model, if it shows its layers; UserError otherwise."""
    if not isinstance(model, LayeredModel):
        raise UserError(
            f"algorithm.name: '{method}' factors the layers of a chain of linear ones, and this "
            "model does not show such a chain; mlp, cnn or softmax_regression would do, or fedavg"
        )
    return model


def ranks_of(rank: int | tuple[int, ...], model: LayeredModel) -> tuple[int, ...]:
    """A rank for each layer, clipped to the layer's smaller side."""
    ranks = (rank,) * len(model.layers) if isinstance(rank, int) else rank
    if len(ranks) != len(model.layers):
        raise UserError(
            f"algorithm.rank: {len(ranks)} ranks for a model of {len(model.layers)} layers; "
            "one for each, or a single number"
        )
    return tuple(
        min(r, layer.inputs, layer.outputs) for r, layer in zip(ranks, model.layers, strict=True)
    )


def compression(model: LayeredModel, ranks: tuple[int, ...]) -> dict[str, float]:
    """R (M + N) / (M N): "compression_actual" of all layers' weights together, and
    "compression_nominal" of the middle layer (the earlier of two), R / 128 for sides of 256."""
    dense = [layer.inputs * layer.outputs for layer in model.layers]
    thin = [
        rank * (layer.inputs + layer.outputs)
        for layer, rank in zip(model.layers, ranks, strict=True)
    ]
    middle = (len(dense) - 1) // 2
    return {
        "compression_actual": sum(thin) / sum(dense),
        "compression_nominal": thin[middle] / dense[middle],
    }


def start_weights(model: LayeredModel, streams: Streams) -> list[tuple[Tensor, Tensor]]:
    """Weight [S, M, N] and bias [S, N] that each layer starts from, before truncation. A weight of
    zero has no rank R: a standard layer stands in for it."""
    params = start(model, streams)
    out = []
    for layer in model.layers:
        weight = params[layer.weight]
        if not weight.any():
            weight = uniform_start((layer,), draws(streams))[layer.weight]
        out.append((weight, params[layer.bias]))
    return out


def point(blocks: Blocks, layer: int) -> LowRank:
    return LowRank(blocks[f"u{layer}"], blocks[f"s{layer}"], blocks[f"v{layer}"])


def point_blocks(layer: int, of: LowRank) -> Blocks:
    return {f"u{layer}": of.u, f"s{layer}": of.s, f"v{layer}": of.v}


def as_lies(block: Tensor) -> Tensor:
    """A thin block [n, M, R] as it lies in memory, [n, R, M], or back; other blocks as they are."""
    return block.mT if block.dim() == 3 else block
