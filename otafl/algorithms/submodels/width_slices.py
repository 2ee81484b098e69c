"""Narrow networks sliced from a wide one, the same layers with fewer channels.

Parameters are tensors name -> [n, *shape]. A layer of C channels gives a narrow network of c
channels those numbered offset, offset + 1, ... (mod C). Layers that are added to each other have
the same number of channels, and so the same slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from otafl.algorithms.base import Views
from otafl.algorithms.parameters import make_flat_view
from otafl.algorithms.submodel_training import (
    LevelsSettings,
    Ratio,
    check_descending,
    find_classifier,
    find_present_classes,
    spread_mask,
    train_,
)
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.models.base import Model, copy_params, flatten, unflatten
from otafl.models.layer_contract import Channels
from otafl.models.network import Network, ResizableModel

WidthRule = Annotated[
    Literal["ceil", "round"],
    Field(
        description="rounding of a width times a layer's channels, at least one; round gives the "
        "model sizes of FedHM's tables"
    ),
]
"""Rounding of the width of a layer."""


class WidthsSettings(LevelsSettings):
    """Settings of methods whose levels are slices of one network."""

    levels: Annotated[tuple[Ratio, ...], AfterValidator(check_descending)] = Field(
        (1.0, 0.5, 0.25, 0.125), min_length=1
    )
    """width of each model size, from the largest"""
    width_rule: WidthRule = "ceil"
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """largest norm of a minibatch's gradient, to which longer ones are scaled; 1 in the authors'
    programs"""


def make_width_fn(ratio: float, rule: WidthRule) -> Channels:
    """Make the function that rounds the width of a layer with a given number of channels."""
    rounded = round if rule == "round" else math.ceil
    return lambda whole: max(1, rounded(round(ratio * whole, 9)))  # .07 * 100 is a little above 7


def build_network(model: Model, ratio: float, rule: WidthRule, method: str) -> Network:
    """Build the model as a network of a given width.

    Parameters
    ----------
    model : Model
        Model.
    ratio : float
        Width relative to the model.
    rule : {"ceil", "round"}
        Rounding of the width of a layer.
    method : str
        Name of the method, for the message.

    Returns
    -------
    Network
        The network.

    Raises
    ------
    UserError
        If the model has only one width.
    """
    if not isinstance(model, ResizableModel):
        raise UserError(
            f"algorithm.name: '{method}' needs a model of several widths, and a "
            f"{type(model).__name__} has one; use model: mlp, cnn, conv_net, vgg or resnet"
        )
    return model.build_network(make_width_fn(ratio, rule))


def index_window(
    wide: Network, narrow: Network, name: str, rows: Tensor, offset: int
) -> tuple[Tensor, ...]:
    """Return the positions of a narrow network's parameter in the wide one, to index it with.

    Parameters
    ----------
    wide, narrow : Network
        Networks.
    name : str
        Name of the parameter.
    rows : Tensor, int64 [m]
        Selected rows.
    offset : int
        First channel.

    Returns
    -------
    tuple of Tensor, int64
        Positions of rows and of each side, which broadcast to the narrow tensor [m, *shape].
    """
    indices = [rows]
    sides = zip(narrow.shapes[name], wide.axes[name], narrow.axes[name], strict=True)
    for size, whole, part in sides:
        at = torch.arange(size, device=rows.device)
        if whole is not None and part is not None and part.channels < whole.channels:
            channel = (at // whole.repeat + offset) % whole.channels
            at = channel * whole.repeat + at % whole.repeat
        indices.append(at)
    return tuple(at.view(-1, *[1] * (len(indices) - 1 - side)) for side, at in enumerate(indices))


def slice_params(
    wide: Network, narrow: Network, tensors: c.Tensors, rows: Tensor, offset: int = 0
) -> c.Tensors:
    """Copy the narrow network's parameters from selected rows of the wide one.

    Parameters
    ----------
    wide, narrow : Network
        Networks.
    tensors : dict of str to Tensor [n, *shape]
        Parameters of the wide network.
    rows : Tensor, int64 [m]
        Selected rows.
    offset : int
        First channel.

    Returns
    -------
    dict of str to Tensor [m, *shape]
        Parameters of the narrow network.
    """
    return {
        name: tensors[name][index_window(wide, narrow, name, rows, offset)]
        for name in narrow.shapes
    }


def build_mask(narrow: Network, local_data: c.LocalData, settings: LevelsSettings) -> c.Tensors:
    """Build the mask of the parameters that rows train.

    With the masked loss a row does not train the classifier's parameters of classes without
    samples.

    Parameters
    ----------
    narrow : Network
        Network of the rows.
    local_data : LocalData
        Data of m rows.
    settings : LevelsSettings
        Settings, with masked_loss.

    Returns
    -------
    dict of str to Tensor [m, *shape]
        1 for trained coordinates, and 0 for others.
    """
    one = torch.ones_like(local_data.cohort.weight)
    present = find_present_classes(local_data, settings)
    known = {} if present is None else dict.fromkeys(find_classifier(narrow), present.to(one))
    return spread_mask(narrow.shapes, known, one)


def train_increments(
    narrow: Network,
    start: c.Tensors,
    local_data: c.LocalData,
    settings: LevelsSettings,
    hyper: c.Hyper,
) -> tuple[c.Tensors, Tensor]:
    """Train from a start, and return the increments.

    Parameters
    ----------
    narrow : Network
        Network of the rows.
    start : dict of str to Tensor [m, *shape]
        Start parameters.
    local_data : LocalData
        Data of the rows.
    settings : LevelsSettings
        Settings.
    hyper : mapping of str to Tensor [S]
        Stackable settings.

    Returns
    -------
    dict of str to Tensor [m, *shape]
        Increments.
    Tensor [m]
        Loss.
    """
    params = copy_params(start)
    loss = train_(narrow, params, local_data, settings, hyper)
    return {name: params[name].sub_(block) for name, block in start.items()}, loss


def apply_masked_mean(model: Tensor, received: c.Received) -> Tensor:
    """Compute the model after the mean increment of each coordinate.

    Parameters
    ----------
    model : Tensor [S, P]
        Current model.
    received : Received
        Aggregates of masked increments.

    Returns
    -------
    Tensor [S, P]
        New model. A coordinate without a delivery stays unchanged.
    """
    is_delivered = received.delivered_weight(0, c.MODEL) > 0
    return model + received.mean[0][c.MODEL].where(is_delivered, 0.0)


def slice_submodels(submodels: Sequence[Network], model: Tensor, offset: int = 0) -> list[Tensor]:
    """Copy each level's slice from the largest network.

    Parameters
    ----------
    submodels : sequence of Network
        Network of each level, from the largest.
    model : Tensor [S, P]
        Parameters of the largest network.
    offset : int
        First channel.

    Returns
    -------
    list of Tensor [S, P']
        Parameters of each level.
    """
    blocks = unflatten(model, submodels[0].shapes)
    rows = torch.arange(len(model), device=model.device)
    return [
        flatten(slice_params(submodels[0], narrow, blocks, rows, offset)) for narrow in submodels
    ]


def build_submodel_views(submodels: Sequence[Network], models: Sequence[Tensor]) -> Views:
    """Build the views "global", the largest model, and "level0", "level1", ... of models [S, P]."""
    return name_submodel_views(
        [make_flat_view(size, model) for size, model in zip(submodels, models, strict=True)]
    )


def name_submodel_views(views: Sequence[c.View]) -> Views:
    """Name the views of the levels, of which the first is also "global"."""
    return {"global": views[0]} | {f"level{level}": one for level, one in enumerate(views)}
