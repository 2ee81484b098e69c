"""Cut narrow networks out of a wide one: the same layers with fewer channels.

Parameters are blocks, name -> [n, *shape]. A layer of C channels gives a narrow network of c those
numbered offset, offset + 1, .. (mod C). Layers that are added to each other have as many channels,
and so the same ones are cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms.base import Outcome, Views
from otafl.algorithms.parameters import make_flat_view
from otafl.algorithms.submodel_training import (
    LevelsSettings,
    Ratio,
    declare_ratios,
    find_classifier,
    group_by_level,
    train_,
)
from otafl.core.contracts import (
    MODEL,
    Group,
    Hyper,
    LocalContext,
    LocalData,
    Payload,
    Received,
    Tensors,
    View,
)
from otafl.core.errors import UserError
from otafl.models.base import Model, copy_params, flatten, unflatten
from otafl.models.layer_steps import Axis, Channels
from otafl.models.network import Network, ResizableModel

WidthRule = Literal["ceil", "round", "floor"]

_ROUNDED: dict[WidthRule, Callable[[float], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
}


def declare_width_rule() -> WidthRule:
    """Declare how the width of a layer is rounded."""
    rule: WidthRule = Field(
        "ceil",
        description="what becomes of a width times a layer's channels (at least one is kept); "
        "round has the model sizes of FedHM's tables",
    )
    return rule


def check_descending(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return the levels. Raises ValueError unless each is smaller than the one before."""
    if any(a <= b for a, b in itertools.pairwise(values)):
        got = ", ".join(f"{value:g}" for value in values)
        order = ", ".join(f"{value:g}" for value in sorted(set(values), reverse=True))
        raise ValueError(
            f"levels must go from the largest to the smallest, each once; got {got}, and {order} "
            "would do"
        )
    return values


class WidthsSettings(LevelsSettings):
    """Hold what methods have whose levels are slices of one network."""

    levels: Annotated[tuple[Ratio, ...], AfterValidator(check_descending)] = declare_ratios(
        (1.0, 0.5, 0.25, 0.125), "width of each model size, the largest first"
    )
    width_rule: WidthRule = declare_width_rule()
    scaler: bool = True
    """in training, what a convolution puts out is divided by the level's width over the largest
    (Diao et al. 2021, section 3)"""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """largest norm of a minibatch's gradient; longer ones are shortened. 1 in the authors'
    programs"""


def make_width_fn(ratio: float, rule: WidthRule) -> Channels:
    """Say how many of C channels a network of this width keeps."""
    rounded = _ROUNDED[rule]
    return lambda whole: max(1, rounded(round(ratio * whole, 9)))  # .07 * 100 is a little above 7


def build_network(model: Model, ratio: float, rule: WidthRule, method: str) -> Network:
    """Return the model as a network of this width. Raises UserError where it has none."""
    if not isinstance(model, ResizableModel):
        raise UserError(
            f"algorithm.name: '{method}' trains the model at several widths, and a "
            f"{type(model).__name__} has one; model: mlp, cnn, conv_net, vgg or resnet would do"
        )
    return model.build_network(make_width_fn(ratio, rule))


def build_networks(settings: WidthsSettings, model: Model, method: str) -> tuple[Network, ...]:
    """Return the network of each level, with HeteroFL's scaler where it is asked for."""
    made = tuple(
        build_network(model, ratio, settings.width_rule, method) for ratio in settings.levels
    )
    if not settings.scaler:
        return made
    return tuple(
        one.rescale(ratio / settings.levels[0])
        for one, ratio in zip(made, settings.levels, strict=True)
    )


Part = tuple[tuple[slice, ...], tuple[slice, ...]]
"""Where a part lies in the narrow block and where in the wide one; all rows."""


def split_window(
    wide: Sequence[Axis | None], narrow: Sequence[Axis | None], offset: int
) -> tuple[Part, ...]:
    """Cut a narrow block where its window passes the last channel of the wide one."""
    sides = [_find_runs(*side, offset) for side in zip(wide, narrow, strict=True)]
    every = slice(None)
    return tuple(
        ((every, *(run[0] for run in runs)), (every, *(run[1] for run in runs)))
        for runs in itertools.product(*sides)
    )


def _find_runs(wide: Axis | None, narrow: Axis | None, offset: int) -> list[tuple[slice, slice]]:
    if wide is None or narrow is None or narrow.channels == wide.channels:
        return [(slice(None), slice(None))]  # all of them, in their order
    start, r = offset % wide.channels, wide.repeat
    first = min(narrow.channels, wide.channels - start)
    runs = [(slice(0, first * r), slice(start * r, (start + first) * r))]
    if first < narrow.channels:
        runs.append((slice(first * r, None), slice(0, (narrow.channels - first) * r)))
    return runs


def slice_params(
    wide: Network, narrow: Network, tensors: Tensors, rows: Tensor, offset: int = 0
) -> Tensors:
    """Cut the narrow network's parameters of the rows [m] out of the wide one's [n, *shape]:
    copies."""
    out = {}
    for name, shape in narrow.shapes.items():
        block = tensors[name]
        out[name] = block.new_empty(len(rows), *shape)
        for here, there in split_window(wide.axes[name], narrow.axes[name], offset):
            out[name][here] = block[there].index_select(0, rows)
    return out


def write_slices_(
    wide: Network, narrow: Network, tensors: Tensors, into: Tensors, rows: Tensor, offset: int = 0
) -> None:
    """Write blocks [m, *shape] of the narrow network where they belong in the rows [m] of the wide
    one's [n, *shape]."""
    for name, block in tensors.items():
        for here, there in split_window(wide.axes[name], narrow.axes[name], offset):
            into[name][there].index_copy_(0, rows, block[here])


def build_mask(narrow: Network, local_data: LocalData, masked_loss: bool) -> Tensors:
    """Return 1 where a row trains a parameter [m, *shape], 0 on what the classifier has for classes
    that a row has no samples of and that its loss is masked for."""
    one = torch.ones_like(local_data.cohort.weight)
    out = {
        name: one.view(-1, *[1] * len(shape)).expand(-1, *shape)
        for name, shape in narrow.shapes.items()
    }
    if masked_loss and local_data.has_classes:
        present = (local_data.count_classes() > 0).to(one)
        for name in find_classifier(narrow):  # the classes are its last side
            shape = narrow.shapes[name]
            row = present.view(len(present), *[1] * (len(shape) - 1), -1)
            out[name] = row.expand(-1, *shape)
    return out


def train_increments(
    narrow: Network, start: Tensors, local_data: LocalData, settings: LevelsSettings, hyper: Hyper
) -> tuple[Tensors, Tensor]:
    """Return the increments [m, *shape] of local training from a start, and the loss [m]."""
    params = copy_params(start)
    loss = train_(narrow, params, local_data, settings, hyper)
    return {name: params[name].sub_(block) for name, block in start.items()}, loss


def train_slices(
    submodels: Sequence[Network],
    settings: WidthsSettings,
    received: Tensor,
    context: LocalContext,
    offset: int = 0,
) -> Outcome:
    """Train each row's slice of the received model [n, P] of the first size, as its level says: one
    group with increments and a mask [n, P], which superpose coordinate by coordinate; loss [n]."""
    wide = submodels[0]
    update, mask = torch.zeros_like(received), torch.zeros_like(received)
    loss = received.new_zeros(len(received))
    blocks, into, knows = (unflatten(flat, wide.shapes) for flat in (received, update, mask))
    for narrow, rows in zip(submodels, group_by_level(context.cohort, len(submodels)), strict=True):
        if not len(rows):
            continue
        work = context.local_data.take(rows)
        start = slice_params(wide, narrow, blocks, rows, offset)
        increments, loss[rows] = train_increments(narrow, start, work, settings, context.hyper)
        write_slices_(wide, narrow, increments, into, rows, offset)
        write_slices_(
            wide, narrow, build_mask(narrow, work, settings.masked_loss), knows, rows, offset
        )
    return {}, build_masked_payload(update, mask), loss


def build_masked_payload(update: Tensor, mask: Tensor) -> Payload:
    """Return one group with increments and their mask, both [n, P]."""
    return (Group({MODEL: update}, mask={MODEL: mask}),)


def apply_masked_mean(model: Tensor, received: Received, group: int = 0) -> Tensor:
    """Return the model [S, P] after the mean increments of those that know each parameter; where
    nothing came it stays."""
    came = received.delivered_weight(group, MODEL) > 0
    return model + received.mean[group][MODEL].where(came, 0.0)


def slice_submodels(submodels: Sequence[Network], model: Tensor, offset: int = 0) -> list[Tensor]:
    """Cut each level's slice [S, P'] out of the model [S, P] of the first size."""
    blocks = unflatten(model, submodels[0].shapes)
    rows = torch.arange(len(model), device=model.device)
    return [
        flatten(slice_params(submodels[0], narrow, blocks, rows, offset)) for narrow in submodels
    ]


def build_submodel_views(submodels: Sequence[Network], models: Sequence[Tensor]) -> Views:
    """Show "global", the largest model, and "level0", "level1", .. of the models [S, P] of each
    size."""
    return name_submodel_views(
        [make_flat_view(size, model) for size, model in zip(submodels, models, strict=True)]
    )


def name_submodel_views(views: Sequence[View]) -> Views:
    """Name the views of the levels, of which the first is "global" too."""
    return {"global": views[0]} | {f"level{level}": one for level, one in enumerate(views)}
