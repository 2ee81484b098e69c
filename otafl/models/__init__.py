"""Models: functions of parameters with a leading row dimension.

`Model` and `LayeredModel` are the base classes of user-defined models.
"""

from __future__ import annotations

from typing import Any

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.losses.base import Loss
from otafl.models.base import Model
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import make_chain
from otafl.user_code.custom_part import CustomPart

__all__ = ["LayeredModel", "Model", "build", "list_layer_sides", "make_chain"]


def build(
    section: Any, input_shape: tuple[int, ...], classes: int, loss: Loss | None = None
) -> Model:
    """Make the model that a section of a scenario names.

    Parameters
    ----------
    section : Settings
        Section `model` of a scenario.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes, of values or of tokens.
    loss : Loss, optional
        Loss that the model is trained with; cross-entropy if not given.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    UserError
        If the model does not fit the samples or the loss.
    """
    model: Model = registry.make_component("model", section, input_shape, classes)
    if loss is not None:
        if loss.scores_positions != model.scores_positions:
            raise UserError(f"model: {loss.describe_model_misfit(section.name)}")
        model.loss = loss
    return model


def list_layer_sides(
    section: Any, input_shape: tuple[int, ...], classes: int
) -> list[tuple[int, int]] | None:
    """List the sides of each layer's weight without drawing parameters.

    Parameters
    ----------
    section : Settings
        Section `model` of a scenario.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.

    Returns
    -------
    list of tuple of int, or None
        (inputs, outputs) of each layer; None if the model is not a chain of layers, does not fit
        the samples, or is user-defined.
    """
    if isinstance(section, CustomPart):
        return None
    try:
        model = build(section, input_shape, classes)
    except UserError:
        return None
    if not isinstance(model, LayeredModel):
        return None
    return [(layer.inputs, layer.outputs) for layer in model.layers]
