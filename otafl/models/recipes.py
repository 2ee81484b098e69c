"""A recipe: what a view's parameters are the parameters of, as plain data that is kept beside
them. `modules.module_of` follows it, with neither the scenario nor the method at hand.

A recipe is a mapping of

    model   "layers" (a chain of `models.base.Layer`), "network" (steps of `models.network`) or
            "module" (the user's own), and what describes it
    form    how the weights are kept: "dense", "low_rank" (blocks u, s, v, b of FedRLR),
            "low_rank_with_bias" (the bias as the last row of u, FedRLR+), "cp" (TDPFed's factors)
    flat    name -> shape of the parameters that lie side by side in the block "model", or None
    parts   how many models are combined: by "together", a "mixture" (FedEM) or the "mean" of
            scores (Split-Mix)
    refused why there is no module, if there is none
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from otafl.algorithms.fedem import PI
from otafl.algorithms.parameters import MODEL
from otafl.core.contracts import Algorithm, Blocks
from otafl.core.errors import UserError
from otafl.core.settings import CustomSettings
from otafl.models import steps as plan
from otafl.models.base import Layer, LayeredModel, Model
from otafl.models.geometry import Window
from otafl.models.module import ModuleModel
from otafl.models.network import Network
from otafl.models.steps import Residual, Step

Recipe = dict[str, Any]

_LEVEL = "level"
_STEPS: dict[str, type[Any]] = {
    one.__name__: one
    for one in (
        plan.Conv,
        plan.Linear,
        plan.Norm,
        plan.Relu,
        plan.MaxPool,
        plan.MeanPool,
        plan.Residual,
    )
}


def recipe_of(
    algorithm: Algorithm,
    view: str,
    params: Blocks,
    config: Any,
    input_shape: Sequence[int],
    classes: int,
) -> Recipe:
    """Of the view of this name with these parameters. config: the scenario's `model`."""
    recipe: Recipe = {"input_shape": list(input_shape), "classes": classes, "parts": 1}
    model = _model_of(algorithm, view)
    recipe |= {"form": _form(params), "flat": None, "together": None}
    if MODEL in params:
        recipe["flat"] = {name: list(shape) for name, shape in model.shapes.items()}
        recipe["parts"] = params[MODEL].shape[1] // model.size
        if PI in params:
            recipe["together"] = "mixture"
        elif hasattr(algorithm, "atom"):
            recipe["together"] = "mean"
    try:
        recipe["model"] = _described(model, config, input_shape, classes)
    except UserError as error:
        recipe["refused"] = str(error)
    return recipe


def blocks_of(recipe: Recipe, params: Blocks) -> Blocks:
    """The parameters that the recipe needs, of all that a view has."""
    if recipe["form"] == "dense":
        return params
    return {name: block for name, block in params.items() if name != "weight"}


def _model_of(algorithm: Algorithm, view: str) -> Model:
    """The model whose parameters a view has; of methods with several, that of its size."""
    sizes = getattr(algorithm, "networks", None) or getattr(algorithm, "sizes", None)
    found: Model
    if view.startswith(_LEVEL) and sizes:
        found = sizes[int(view.removeprefix(_LEVEL))]
    elif hasattr(algorithm, "network"):
        found = algorithm.network
    elif hasattr(algorithm, "atom"):
        found = algorithm.atom
    elif sizes:
        found = sizes[0]
    else:
        found = algorithm.model  # type: ignore[attr-defined]
    return found


def _form(params: Mapping[str, Tensor]) -> str:
    if any(name.endswith(".A1") for name in params):
        return "cp"
    if not {"u0", "s0", "v0"} <= params.keys():
        return "dense"
    return "low_rank" if "b0" in params else "low_rank_with_bias"


def _described(
    model: Model, config: Any, input_shape: Sequence[int], classes: int
) -> dict[str, Any]:
    if isinstance(model, LayeredModel):
        layers = [dataclasses.asdict(layer) for layer in model.layers]
        return {"kind": "layers", "layers": layers, "slope": model.leaky_slope}
    if isinstance(model, Network):
        steps = [_plain(step) for step in model.steps]
        return {
            "kind": "network",
            "image": list(model.image),
            "steps": steps,
            "unroll": model.unroll,
        }
    if isinstance(model, ModuleModel) and isinstance(config, CustomSettings):
        options = config.options | {"input_shape": tuple(input_shape), "classes": classes}
        return {"kind": "module", "name": config.name, "options": options}
    raise UserError(
        f"model.name: '{config.name}' cannot be had as a plain PyTorch module; mlp, cnn, resnet, "
        "vgg, conv_net, softmax_regression or a torch.nn.Module of your own would do"
    )


def _plain(step: Step) -> dict[str, Any]:
    if isinstance(step, Residual):
        sides = {"body": step.body, "shortcut": step.shortcut}
        return {"step": "Residual"} | {n: [_plain(one) for one in of] for n, of in sides.items()}
    return {"step": type(step).__name__} | dataclasses.asdict(step)


def layers_of(described: Mapping[str, Any]) -> list[Layer]:
    """The layers of a model of kind "layers"."""
    out = []
    for one in described["layers"]:
        window = one["window"]
        out.append(Layer(**one | {"window": None if window is None else Window(**window)}))
    return out


def steps_of(described: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """The steps of a model of kind "network"."""
    out: list[Step] = []
    for one in described:
        fields = {name: value for name, value in one.items() if name != "step"}
        if one["step"] == "Residual":
            fields = {name: steps_of(inner) for name, inner in fields.items()}
        out.append(_STEPS[one["step"]](**fields))
    return tuple(out)
