"""The low-rank layers of FedHM's models: which they are, their ranks and penalty; and rows, masks
and means of what is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.algorithms.config_fedhm import FedHmConfig
from otafl.algorithms.level_training import Penalty
from otafl.algorithms.parameters import MODEL, column
from otafl.core.contracts import Blocks, Group, Received
from otafl.core.errors import UserError
from otafl.factorised.truncation import Factors, rank_of
from otafl.models.base import Model, Shapes, flatten, unflatten
from otafl.models.network import (
    Conv,
    Linear,
    Network,
    Sized,
    Unroll,
    each_step,
    rolled,
    unrolled,
)


@dataclass(frozen=True)
class Layer:
    """A layer that can be low-rank. shape: of its weight, which as a matrix [a, b] has `sides`."""

    name: str
    shape: tuple[int, ...]
    outputs: int
    sides: tuple[int, int]
    unroll: Unroll

    @property
    def weight(self) -> str:
        return f"{self.name}.weight"

    @property
    def pair(self) -> tuple[str, str]:
        """Names of its factors."""
        return f"{self.name}.left", f"{self.name}.right"

    def rank(self, ratio: float) -> int:
        return rank_of(ratio, self.outputs, self.sides)

    def factors(self, blocks: Mapping[str, Tensor]) -> Factors:
        left, right = self.pair
        return Factors(blocks[left], blocks[right])

    def matrix(self, weight: Tensor) -> Tensor:
        """[n, a, b] of [n, *shape]."""
        return unrolled(weight, self.unroll)

    def weights(self, matrix: Tensor) -> Tensor:
        """The other way."""
        return rolled(matrix, self.shape, self.unroll)


def dense_network(config: FedHmConfig, model: Model) -> Network:
    """The model at full width and rank."""
    if not isinstance(model, Sized):
        raise UserError(
            "algorithm.name: 'fedhm' cuts the rank of a network's layers, and the model is not one "
            "that can be cut; mlp, cnn, conv_net, resnet or vgg would do"
        )
    whole = model.network(lambda channels: channels)
    return Network(whole.image, whole.steps, config.unroll, whole.scale)


def low_rank_layers(config: FedHmConfig, model: Model, dense: Network) -> tuple[Layer, ...]:
    """Those behind the dense prefix: the settings', else the model's own `dense_prefix`, else one
    layer of a network of convolutions, and none of another."""
    of = {step.name: step for step in each_step(dense.steps) if isinstance(step, Conv | Linear)}
    steps = [of[name] for name in dense.factorisable]
    prefix = config.dense_prefix
    if prefix is None:
        default = int(any(isinstance(step, Conv) for step in steps))
        prefix = int(getattr(model, "dense_prefix", default))
    if prefix >= len(steps) and config.rank_ratios:
        raise UserError(
            f"algorithm.dense_prefix: {prefix} leaves nothing to be factorised of a model with "
            f"{len(steps)} layers that could be; "
            + (f"{len(steps) - 1} or less would do" if steps else "one with hidden layers would do")
        )
    return tuple(_layer(step, dense) for step in steps[prefix:])


def _layer(step: Conv | Linear, dense: Network) -> Layer:
    k, repeat = (step.kernel, 1) if isinstance(step, Conv) else (1, step.repeat)
    sides = step.outputs * k, step.inputs * repeat * k
    shape = dense.shapes[f"{step.name}.weight"]
    return Layer(step.name, shape, step.outputs, sides, dense.unroll)


def frobenius(pairs: Collection[tuple[str, str]], decay: Tensor) -> Penalty:
    """lambda/2 sum_l |U_l V_l^T|_F^2 of the rows, by their Gram matrices; decay: lambda [n]."""

    def penalty(params: Blocks) -> Tensor:
        factor = 0.5 * decay  # a tensor that autograd may keep
        total = torch.zeros_like(factor)
        for left, right in pairs:
            u, v = params[left], params[right]
            total = total + (torch.bmm(u.mT, u) * torch.bmm(v, v.mT)).sum((1, 2))
        return factor * total

    return penalty


def mask_of(shapes: Shapes, last: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """[n, P] bool over blocks side by side. last: of some blocks, what the n rows know of their
    last side, [n, shape[-1]]; of the others they know all. rows: any [n] tensor."""
    every = torch.ones_like(rows, dtype=torch.bool)[:, None]
    blocks = {}
    for name, shape in shapes.items():
        known = last.get(name, every)
        spread = known.view(len(rows), *[1] * (len(shape) - 1), known.shape[1])
        blocks[name] = spread.expand(-1, *shape)
    return flatten(blocks)


def rows_of_blocks(blocks: Blocks, rows: Tensor) -> Blocks:
    """The rows [n] int64, in memory of their own."""
    return {name: block.index_select(0, rows) for name, block in blocks.items()}


def joined(groups: Sequence[Group]) -> Group:
    """The groups of all levels as one, rows in order."""
    order = torch.argsort(torch.cat([group.rows for group in groups if group.rows is not None]))
    sent = torch.cat([group.blocks[MODEL] for group in groups])[order]
    masks = [group.mask[MODEL] for group in groups if group.mask is not None]
    return Group({MODEL: sent}, mask={MODEL: torch.cat(masks)[order]} if masks else None)


def means_of(received: Received, group: int, shapes: Shapes) -> tuple[Blocks, Blocks]:
    """Means of a group's parameters, and the weights that arrived, ready to multiply them."""
    mean, count = unflatten(received.mean[group][MODEL], shapes), received.count[group]
    if isinstance(count, Tensor):
        return mean, {name: column(count, block) for name, block in mean.items()}
    return mean, unflatten(count[MODEL], shapes)
