"""Narrow networks cut out of a wide one: the same layers with fewer channels. Plain functions of
parameters as blocks, name -> [n, *shape], and what methods that do so have in common.

A layer of C channels gives a narrow network of c those numbered offset, offset + 1, .. (mod C).
Layers that are added to each other have as many channels, and so the same ones are cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from otafl.algorithms.config_levels import LevelsConfig
from otafl.algorithms.config_widths import WidthRule, WidthsConfig
from otafl.algorithms.level_training import buckets, classifier_of, train_
from otafl.algorithms.parameters import MODEL, copied, flat_view
from otafl.core.contracts import Blocks, Cohort, Group, Hyper, Level, Payload, Received, View, Work
from otafl.core.errors import UserError
from otafl.models.base import Model, flatten, unflatten
from otafl.models.network import Axis, Channels, Network

_ROUNDED: dict[WidthRule, Callable[[float], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
}


def channels(ratio: float, rule: WidthRule) -> Channels:
    """How many of C channels a network of this width keeps."""
    rounded = _ROUNDED[rule]
    return lambda whole: max(1, rounded(round(ratio * whole, 9)))  # .07 * 100 is a little above 7


def network(model: Model, ratio: float, rule: WidthRule, method: str) -> Network:
    """The model as a network of this width. Raises UserError where it has none."""
    make = getattr(model, "network", None)
    if make is None:
        raise UserError(
            f"algorithm.name: '{method}' trains the model at several widths, and a "
            f"{type(model).__name__} has one; model: mlp, cnn, conv_net, vgg or resnet would do"
        )
    made: Network = make(channels(ratio, rule))
    return made


def scaled(narrow: Network, scale: float) -> Network:
    """The network with HeteroFL's scaler."""
    return Network(narrow.image, narrow.steps, narrow.unroll, scale)


def networks(config: WidthsConfig, model: Model, method: str) -> tuple[Network, ...]:
    """The network of each level."""
    made = (network(model, ratio, config.width_rule, method) for ratio in config.levels)
    if not config.scaler:
        return tuple(made)
    return tuple(
        scaled(one, ratio / config.levels[0])
        for one, ratio in zip(made, config.levels, strict=True)
    )


def level_of(ratio: float, narrow: Network, copies: int = 1) -> Level:
    """What so many networks of a kind are as a size."""
    return Level(
        ratio=ratio,
        parameters=copies * narrow.size,
        macs=copies * narrow.macs,
        flops=lambda samples: copies * narrow.training_flops(samples),
        kept_reals=copies * narrow.kept_reals,
    )


Part = tuple[tuple[slice, ...], tuple[slice, ...]]
"""Where a part lies in the narrow block and where in the wide one; all rows."""


def parts(
    wide: Sequence[Axis | None], narrow: Sequence[Axis | None], offset: int
) -> tuple[Part, ...]:
    """A narrow block cut where its window passes the last channel of the wide one."""
    sides = [_runs(*side, offset) for side in zip(wide, narrow, strict=True)]
    every = slice(None)
    return tuple(
        ((every, *(run[0] for run in runs)), (every, *(run[1] for run in runs)))
        for runs in itertools.product(*sides)
    )


def _runs(wide: Axis | None, narrow: Axis | None, offset: int) -> list[tuple[slice, slice]]:
    if wide is None or narrow is None or narrow.channels == wide.channels:
        return [(slice(None), slice(None))]  # all of them, in their order
    start, r = offset % wide.channels, wide.repeat
    first = min(narrow.channels, wide.channels - start)
    runs = [(slice(0, first * r), slice(start * r, (start + first) * r))]
    if first < narrow.channels:
        runs.append((slice(first * r, None), slice(0, (narrow.channels - first) * r)))
    return runs


def cut(wide: Network, narrow: Network, blocks: Blocks, rows: Tensor, offset: int = 0) -> Blocks:
    """The narrow network's parameters of the rows [m] out of the wide one's [n, *shape]: copies."""
    out = {}
    for name, shape in narrow.shapes.items():
        block = blocks[name]
        out[name] = block.new_empty(len(rows), *shape)
        for here, there in parts(wide.axes[name], narrow.axes[name], offset):
            out[name][here] = block[there].index_select(0, rows)
    return out


def place_(
    wide: Network, narrow: Network, blocks: Blocks, into: Blocks, rows: Tensor, offset: int = 0
) -> None:
    """Writes blocks [m, *shape] of the narrow network where they belong in the rows [m] of the wide
    one's [n, *shape]."""
    for name, block in blocks.items():
        for here, there in parts(wide.axes[name], narrow.axes[name], offset):
            into[name][there].index_copy_(0, rows, block[here])


def known(narrow: Network, work: Work, config: LevelsConfig) -> Blocks:
    """1 where a row trains a parameter [m, *shape], 0 on what the classifier has for classes that a
    row has no samples of and that its loss is masked for."""
    one = torch.ones_like(work.cohort.weight)
    out = {
        name: one.view(-1, *[1] * len(shape)).expand(-1, *shape)
        for name, shape in narrow.shapes.items()
    }
    if config.masked_loss:
        present = (work.class_counts() > 0).to(one)
        for name in classifier_of(narrow):  # the classes are its last side
            shape = narrow.shapes[name]
            row = present.view(len(present), *[1] * (len(shape) - 1), -1)
            out[name] = row.expand(-1, *shape)
    return out


def trained(
    narrow: Network, start: Blocks, work: Work, config: LevelsConfig, hyper: Hyper
) -> tuple[Blocks, Tensor]:
    """The increments [m, *shape] of local training from a start, and the loss [m]."""
    params = copied(start)
    loss = train_(narrow, params, work, config, hyper)
    return {name: params[name].sub_(block) for name, block in start.items()}, loss


def train_slices(
    sizes: Sequence[Network],
    config: LevelsConfig,
    received: Tensor,
    cohort: Cohort,
    work: Work,
    hyper: Hyper,
    offset: int = 0,
) -> tuple[Payload, Tensor]:
    """Each row trains its level's slice of the received model [n, P] of the first size: one group
    with increments and a mask [n, P], which superpose coordinate by coordinate; loss [n]."""
    wide = sizes[0]
    update, mask = torch.zeros_like(received), torch.zeros_like(received)
    loss = received.new_zeros(len(received))
    blocks, into, knows = (unflatten(flat, wide.shapes) for flat in (received, update, mask))
    for narrow, rows in zip(sizes, buckets(cohort, len(sizes)), strict=True):
        if not len(rows):
            continue
        own = work.take(rows)
        start = cut(wide, narrow, blocks, rows, offset)
        increments, loss[rows] = trained(narrow, start, own, config, hyper)
        place_(wide, narrow, increments, into, rows, offset)
        place_(wide, narrow, known(narrow, own, config), knows, rows, offset)
    return (Group({MODEL: update}, mask={MODEL: mask}),), loss


def moved(model: Tensor, received: Received, group: int = 0) -> Tensor:
    """The model [S, P] after the mean increments of those that know each parameter; where nothing
    came it stays."""
    count = received.count[group]
    came = count[MODEL] > 0 if isinstance(count, dict) else (count > 0)[:, None]
    return model + received.mean[group][MODEL].where(came, 0.0)


def slices(sizes: Sequence[Network], model: Tensor, offset: int = 0) -> list[Tensor]:
    """Each level's slice [S, P'] of the model [S, P] of the first size."""
    blocks = unflatten(model, sizes[0].shapes)
    rows = torch.arange(len(model), device=model.device)
    return [flatten(cut(sizes[0], narrow, blocks, rows, offset)) for narrow in sizes]


def level_views(sizes: Sequence[Network], models: Sequence[Tensor]) -> dict[str, View]:
    """Views "global", the largest model, and "level0", "level1", .. of the models [S, P] of each
    size."""
    each = [flat_view(size, model) for size, model in zip(sizes, models, strict=True)]
    return {"global": each[0]} | {f"level{level}": one for level, one in enumerate(each)}
