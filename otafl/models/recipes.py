"""Descriptions of evaluated models as plain data, which are stored with the parameters.

`modules.build_module` makes a torch module of a recipe and parameters, without the scenario or the
method. A recipe is a mapping with the keys

model        "layers" (a chain of `layered.Layer`), "network" (steps of `layer_steps`),
"transformer" or "module" (user-defined), and its description, see `Model.describe`
form         representation of the weights: "dense", "low_rank" (u, s, v, b of FedRLR),
"low_rank_with_bias" (the bias as the last row of u, FedRLR+), "cp" (TDPFed's factors)
flat         name -> shape of the parameters that are side by side in the tensor "model", or None
parts        number of combined models
together     combination of the models: "mixture" or, of values, "weighted_mean" (FedEM), "mean" of
scores (Split-Mix), or None
refused      reason why a torch module cannot be made, if so
input_shape  shape of a sample
classes      number of classes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otafl.core.contracts import MODEL, Tensors, View
from otafl.models.base import Model

BASE = "base."
"""Beginning of the names of weights without adapters, which no module needs."""

Recipe = dict[str, Any]
"""Recipe of an evaluated model."""

PI = "mixing"
"""Name of the tensor of a mixture's weights, [n, M], their logarithm up to a constant."""


def build_recipe(
    model: Model, view: View, name: str, input_shape: Sequence[int], classes: int
) -> Recipe:
    """Build the recipe of a view.

    Parameters
    ----------
    model : Model
        Model of the view's parameters; one of several that are combined.
    view : View
        View.
    name : str
        Name of the model in the scenario.
    input_shape : sequence of int
        Shape of one sample.
    classes : int
        Number of classes.

    Returns
    -------
    dict of str to any
        The recipe.
    """
    recipe: Recipe = {
        "input_shape": list(input_shape),
        "classes": classes,
        "parts": 1,
        "form": _detect_form(view.params),
        "flat": None,
        "together": view.ensemble,
    }
    if MODEL in view.params:
        recipe["flat"] = {name: list(shape) for name, shape in model.shapes.items()}
        recipe["parts"] = view.params[MODEL].shape[1] // model.num_params
    described = model.describe()
    if described is None:
        recipe["refused"] = (
            f"model.name: '{name}' cannot be exported as a plain PyTorch module; use mlp, cnn, "
            "resnet, vgg, conv_net, transformer, softmax_regression or your own torch.nn.Module"
        )
    else:
        recipe["model"] = described
    return recipe


def select_params(recipe: Recipe, params: Tensors) -> Tensors:
    """Return those of a view's parameters that the recipe needs."""
    if recipe["form"] == "dense":
        return params
    return {name: block for name, block in params.items() if name != "weight"}


def _detect_form(params: Tensors) -> str:
    """Detect the representation of the weights."""
    if any(name.endswith(".A1") for name in params):
        return "cp"
    if not {"u0", "s0", "v0"} <= params.keys():
        return "dense"
    return "low_rank" if "b0" in params else "low_rank_with_bias"
