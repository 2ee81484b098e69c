"""Trained models as ordinary `torch.nn.Module`s in eval mode.

A module maps [batch, *input_shape] to scores [batch, classes]. A low-rank weight is two thin layers
in a row, one in CP form two (dense) or four (convolution). So the module has the size and speed of
the method's model.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from otafl.core.contracts import MODEL, Tensors, View
from otafl.core.errors import UserError
from otafl.models.base import Model
from otafl.models.chain_network import build_chain, to_steps
from otafl.models.custom import isolate_torch
from otafl.models.layer_steps import Linear
from otafl.models.linear_layer import parse_layers
from otafl.models.module_model import list_trained
from otafl.models.step_lists import build_modules, parse_steps
from otafl.models.transformer_module import TransformerModule
from otafl.user_code import loading

BASE = "base."
"""Beginning of the names of weights without adapters, which no module needs."""

Recipe = dict[str, Any]
"""Description of an evaluated model as plain data, which is stored with its parameters.

`build_module` makes a torch module of it and parameters, without the scenario or the method:

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


Params = Mapping[str, Tensor]


class Mixture(nn.Module):
    """Mixture of models h_m with weights pi_m.

    Its scores are the log-probabilities of sum_m pi_m h_m(x), or of values their weighted mean. The
    buffer log_pi is [M].
    """

    log_pi: Tensor

    def __init__(self, parts: Sequence[nn.Module], log_pi: Tensor, of_values: bool = False) -> None:
        super().__init__()
        self.parts, self.of_values = nn.ModuleList(parts), of_values
        self.register_buffer("log_pi", log_pi)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.stack([part(x) for part in self.parts], -1)
        if self.of_values:
            return (scores * self.log_pi.exp()).sum(-1)
        return torch.logsumexp(torch.log_softmax(scores, -2) + self.log_pi, -1)


class Mean(nn.Module):
    """Module of the mean of several models' scores."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.parts], -1).mean(-1)


def build_module(recipe: Recipe, params: Params) -> nn.Module:
    """Build the module of one model.

    Parameters
    ----------
    recipe : dict of str to any
        Recipe of the model.
    params : mapping of str to Tensor [*shape]
        Parameters, which are copied.

    Returns
    -------
    torch.nn.Module
        Module in eval mode.

    Raises
    ------
    UserError
        If the recipe gives a reason why the module does not exist.
    """
    if "refused" in recipe:
        raise UserError(recipe["refused"])
    with torch.inference_mode(False), torch.no_grad():
        parts = [_build_single(recipe, one) for one in split_parts(recipe, params)]
        module = parts[0] if len(parts) == 1 else Mean(parts)
        if recipe["together"] in ("mixture", "weighted_mean"):
            of_values = recipe["together"] == "weighted_mean"
            module = Mixture(parts, torch.log_softmax(params[PI], -1), of_values)
    return module.eval()


def count_macs(module: nn.Module, x: Tensor) -> int:
    """Count the MACs of convolutions and linear layers.

    Parameters
    ----------
    module : torch.nn.Module
        Module.
    x : Tensor [1, *input]
        One sample.

    Returns
    -------
    int
        Multiply-accumulate operations.
    """
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(x)
    return int(counter.get_total_flops()) // 2


def count_numbers(module: nn.Module) -> int:
    """Count the real numbers of a stored model: parameters, and statistics of normalisations."""
    every = [*module.parameters(), *module.buffers()]
    return sum(one.numel() for one in every if one.is_floating_point())


def split_parts(recipe: Recipe, params: Params) -> Iterator[Params]:
    """Yield the parameters of each of the combined models."""
    if recipe["flat"] is None:
        yield {name: block for name, block in params.items() if not name.startswith(BASE)}
        return
    shapes, several = recipe["flat"], recipe["together"] == "mean"
    for index, flat in enumerate(params[MODEL].chunk(recipe["parts"])):
        pieces = flat.split([math.prod(shape) for shape in shapes.values()])
        own = {n: p.view(*shapes[n]) for n, p in zip(shapes, pieces, strict=True)}
        other = {n: b for n, b in params.items() if n not in (MODEL, PI)}
        yield own | {n: b[index] if several else b for n, b in other.items()}


def _build_single(recipe: Recipe, params: Params) -> nn.Module:
    """Build the module of one of the combined models."""
    model, shape = recipe["model"], tuple(recipe["input_shape"])
    if model["kind"] == "module":
        return _build_custom(model, shape, params)
    if model["kind"] == "transformer":
        return TransformerModule(model, params)
    if model["kind"] == "network":
        image, steps = tuple(model["image"]), parse_steps(model["steps"])
        module = build_modules(steps, params, model["unroll"])
    else:
        layers = parse_layers(model)
        image, steps = to_steps(layers, model["slope"])
        module = build_chain(layers, recipe["form"], model["slope"], params)
    front: OrderedDict[str, nn.Module] = OrderedDict()
    if len(shape) > 1 and (shape != image or isinstance(steps[0], Linear)):
        front["flatten"] = nn.Flatten()
    if shape != image and not isinstance(steps[0], Linear):
        front["image"] = nn.Unflatten(1, image)
    return nn.Sequential(front | OrderedDict(module.named_children()))


def _build_custom(model: Mapping[str, Any], shape: tuple[int, ...], params: Params) -> nn.Module:
    """Build the user-defined module with the trained parameters."""
    name, options = model["name"], model["options"]
    make = loading.load_checked(name, "model.name", options, "input_shape", "classes")
    with isolate_torch():  # a copy, because the function may return one module at each call
        module = copy.deepcopy(make(shape, model["classes"], **options))
    if not isinstance(module, nn.Module):
        raise UserError(
            f"model.name: '{model['name']}' gives a {type(module).__name__}; expected a "
            "torch.nn.Module class, or a function that returns one"
        )
    is_double = any(block.dtype == torch.float64 for block in params.values())
    module = module.double() if is_double else module.float()
    own = {_find_state_name(name, module): block for name, block in params.items()}
    lacking = list_trained(module).keys() - own.keys()
    fault = f"{', '.join(sorted(lacking))} was not trained" if lacking else ""
    try:
        module.load_state_dict(module.state_dict() | own)
    except RuntimeError as error:
        fault = " ".join(str(error).split())
    if fault:
        raise UserError(
            f"model.name: '{model['name']}' gives a module with other parameters than the trained "
            f"ones ({fault}); use the module of the run"
        )
    return module


def _find_state_name(name: str, module: nn.Module) -> str:
    """Return PyTorch's name of a parameter, or of a statistic of batch normalisation."""
    path, _, last = name.rpartition(".")
    running = {"mean": "running_mean", "variance": "running_var"}.get(last)
    known = dict(module.named_buffers())
    return f"{path}.{running}" if running and f"{path}.{running}" in known else name
