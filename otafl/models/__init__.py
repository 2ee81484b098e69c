"""Train models, which are functions of parameters with a leading row dimension. `Model` and
`LayeredModel` are the bases for one's own."""

from __future__ import annotations

from typing import Any

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.losses.base import Loss
from otafl.models.base import Model
from otafl.models.geometry import Window
from otafl.models.layered import Layer, LayeredModel
from otafl.user_code.custom_part import CustomPart

__all__ = ["Layer", "LayeredModel", "Model", "Window", "build", "list_layer_sides"]


def build(
    section: Any, input_shape: tuple[int, ...], classes: int, loss: Loss | None = None
) -> Model:
    """Make the model that a section of a scenario names, for samples of a shape and so many classes
    (or values, or tokens). Raises UserError if the model does not fit them, or not the loss."""
    model: Model = registry.make_component("model", section, input_shape, classes)
    if loss is not None:
        if loss.scores_positions != model.scores_positions:
            raise UserError(f"model: {loss.describe_model_misfit(section.name)}")
        model.loss = loss
    return model


def list_layer_sides(
    section: Any, input_shape: tuple[int, ...], classes: int
) -> list[tuple[int, int]] | None:
    """Return (inputs, outputs) of each layer's weight, before there are any parameters.

    Returns
    -------
    None where the model is no chain of layers, where it does not fit the samples, and of a model
    of the user's own.
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
