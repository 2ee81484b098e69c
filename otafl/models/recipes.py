"""A recipe says what a view's parameters are the parameters of, as plain data kept beside them.

`modules.module_of` follows it, with neither the scenario nor the method at hand. It is a mapping of

    model     "layers" (a chain of `require_layers.Layer`), "network" (steps of
    `otafl.models.layer_steps`) or
              "module" (the user's own), and what describes it: see `Model.describe`
    form      how the weights are kept: "dense", "low_rank" (blocks u, s, v, b of FedRLR),
              "low_rank_with_bias" (the bias as the last row of u, FedRLR+), "cp" (TDPFed's factors)
    flat      name -> shape of the parameters that lie side by side in the block "model", or None
    parts     how many models are combined
    together  how: a "mixture" (FedEM; of values "weighted_mean"), the "mean" of scores
              (Split-Mix), or None
    refused   why there is no module, if there is none
    input_shape, classes : of the samples
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otafl.core.contracts import MODEL, Tensors, View
from otafl.models.base import Model

Recipe = dict[str, Any]

PI = "mixing"
"""The block of a mixture's weights, [n, M]: their logarithm up to a constant."""


def build_recipe(
    model: Model, view: View, name: str, input_shape: Sequence[int], classes: int
) -> Recipe:
    """Return the recipe of a view.

    Parameters
    ----------
    model : whose parameters the view has; of several that are combined, one of them.
    name : of the model in the scenario.
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
            f"model.name: '{name}' cannot be had as a plain PyTorch module; mlp, cnn, resnet, "
            "vgg, conv_net, softmax_regression or a torch.nn.Module of your own would do"
        )
    else:
        recipe["model"] = described
    return recipe


def select_params(recipe: Recipe, params: Tensors) -> Tensors:
    """Return the parameters that the recipe needs, of all that a view has."""
    if recipe["form"] == "dense":
        return params
    return {name: block for name, block in params.items() if name != "weight"}


def _detect_form(params: Tensors) -> str:
    if any(name.endswith(".A1") for name in params):
        return "cp"
    if not {"u0", "s0", "v0"} <= params.keys():
        return "dense"
    return "low_rank" if "b0" in params else "low_rank_with_bias"
