"""Hold what methods share whose devices start from the broadcast model and send the model itself.

Parameters are blocks [.., *shape]. Weights are the matrices of a model's layers, or a module's
parameters of two and more dimensions; everything else is called a bias.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from otafl.algorithms.deliveries import replace_delivered
from otafl.core import settings
from otafl.core.contracts import Group, Hyper, Payload, Received, Tensors
from otafl.core.settings import DataDisclosure, declare_stackable
from otafl.models.base import Model
from otafl.models.layered import LayeredModel

IDEAL_ROUTE = DataDisclosure("ideal", "ota", "the biases")
"""What `bias_mode: ideal` tells of the devices' data."""

BiasMode = Annotated[
    Literal["ideal", "ota"],
    Field(description="biases carried free of error and uncounted, or over the uplink"),
    IDEAL_ROUTE,
]
"""How biases travel."""


class WholeSettings(settings.Settings):
    """Hold what the methods share that FedRLR is compared with (Xue and Lau 2023, section VI)."""

    learning_rate: float = declare_stackable(0.2, introduced=0.002, gt=0)
    """SGD step of the first round; FedRLR's experiments, with pixels from 0 to 255: 2 / 1000"""
    decay: float = declare_stackable(0.001, ge=0)
    """the step of round t is learning_rate / (1 + decay t); FedRLR: 2 / (1000 + t)"""


def list_weights(model: Model) -> tuple[str, ...]:
    """List the names of a model's weights."""
    if isinstance(model, LayeredModel):
        return tuple(layer.weight for layer in model.layers)
    return tuple(name for name, shape in model.shapes.items() if len(shape) >= 2)


def compute_step_size(hyper: Hyper, round: int) -> Tensor:
    """Return learning_rate / (1 + decay t), [S]: the paper's q / (nu + t) at q = nu learning_rate
    and nu = 1 / decay."""
    return hyper["learning_rate"] / (1.0 + hyper["decay"] * round)


def build_payload(params: Tensors, model: Model, bias_mode: BiasMode) -> Payload:
    """Send weights over the uplink, and biases in a second group, free of error or over the
    uplink."""
    matrices = {name: params[name] for name in list_weights(model)}
    biases = {name: block for name, block in params.items() if name not in matrices}
    groups = [Group(matrices)] if matrices else []
    return (*groups, build_bias_group(biases, bias_mode)) if biases else tuple(groups)


def build_bias_group(biases: Tensors, bias_mode: BiasMode) -> Group:
    """Send biases in a group of their own."""
    if bias_mode == "ota":
        return Group(biases)
    return Group(biases, route="ideal", reason="the paper describes no uplink of the biases")


def get_received_model(old: Tensors, received: Received) -> Tensors:
    """Return the weighted mean of what was sent, [S, *shape], in the order of the old model, whose
    reals it has where nobody was heard."""
    mean: Tensors = {}
    for group in range(len(received.mean)):
        mean |= replace_delivered(old, received, group)
    return {name: mean[name] for name in old}


def compute_density(server: Tensors, model: Model) -> dict[str, Tensor]:
    """Measure "weight_density" [S], the share of the global weights that are not zero."""
    blocks = [server[name].flatten(1) for name in list_weights(model)]
    some = sum((block != 0).sum(1) for block in blocks)
    assert isinstance(some, Tensor)
    return {"weight_density": some.to(blocks[0].dtype) / sum(block.shape[1] for block in blocks)}
