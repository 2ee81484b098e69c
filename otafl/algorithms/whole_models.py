"""Steps of methods whose devices start from the broadcast model and send the model itself.

Parameters are tensors [.., *shape]. Weights are the matrices of a model's layers, or a module's
parameters of two or more dimensions. All other parameters count as biases.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from otafl.algorithms.deliveries import replace_delivered
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Round
from otafl.core.settings import DataDisclosure, declare_stackable
from otafl.models.base import Model
from otafl.models.layered import LayeredModel

IDEAL_ROUTE = DataDisclosure("ideal", "ota", "the biases")
"""The data that `bias_mode: ideal` discloses."""

BiasMode = Annotated[
    Literal["ideal", "ota"],
    Field(description="route of the biases: ideal, free of errors and not counted, or ota, uplink"),
    IDEAL_ROUTE,
]
"""Route of the biases."""


class WholeSettings(settings.Settings):
    """Settings of FedRLR's baselines (Xue and Lau 2023, section VI)."""

    learning_rate: float = declare_stackable(0.2, gt=0)
    """step size of local SGD in the first round; 2 / 1000 in FedRLR's experiments, with pixels from
    0 to 255"""
    decay: float = declare_stackable(0.001, ge=0)
    """rate of the decay: the step size of round t is learning_rate / (1 + decay t); FedRLR has 2 /
    (1000 + t)"""


def list_weights(model: Model) -> tuple[str, ...]:
    """List the names of a model's weights."""
    if isinstance(model, LayeredModel):
        return tuple(layer.weight for layer in model.layers)
    return tuple(name for name, shape in model.shapes.items() if len(shape) >= 2)


def compute_step_size(hyper: c.Hyper, round: Round) -> Tensor:
    """Compute the step size of a round.

    Parameters
    ----------
    hyper : mapping of str to Tensor [S]
        Stackable settings, with `learning_rate` and `decay`.
    round : int, or Tensor, int64 []
        Index of the round, t.

    Returns
    -------
    Tensor [S]
        learning_rate / (1 + decay t), the paper's q / (nu + t) for q = nu learning_rate and nu = 1
        / decay.
    """
    return hyper["learning_rate"] / (1.0 + hyper["decay"] * round)


def build_payload(params: c.Tensors, model: Model, bias_mode: BiasMode) -> c.Payload:
    """Build a payload of the weights, and of the biases in a second group.

    Parameters
    ----------
    params : dict of str to Tensor [n, *shape]
        Parameters.
    model : Model
        Model of the parameters.
    bias_mode : {"ideal", "ota"}
        Route of the biases.

    Returns
    -------
    tuple of Group
        The groups.
    """
    matrices = {name: params[name] for name in list_weights(model)}
    biases = {name: block for name, block in params.items() if name not in matrices}
    groups = [c.Group(matrices)] if matrices else []
    return (*groups, build_bias_group(biases, bias_mode)) if biases else tuple(groups)


def build_bias_group(biases: c.Tensors, bias_mode: BiasMode) -> c.Group:
    """Build a group of the biases."""
    if bias_mode == "ota":
        return c.Group(biases)
    return c.Group(biases, route="ideal", reason="the paper describes no uplink of the biases")


def get_received_model(old: c.Tensors, received: c.Received) -> c.Tensors:
    """Return the weighted mean of the received models, in the order of the old model.

    Parameters
    ----------
    old : dict of str to Tensor [S, *shape]
        Current model, which stays for coordinates without a delivery.
    received : Received
        Aggregates.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        New model.
    """
    mean: c.Tensors = {}
    for group in range(len(received.mean)):
        mean |= replace_delivered(old, received, group)
    return {name: mean[name] for name in old}


def compute_density(server: c.Tensors, model: Model) -> dict[str, Tensor]:
    """Measure "weight_density" [S], the share of the global weights that are not zero."""
    blocks = [server[name].flatten(1) for name in list_weights(model)]
    some = sum((block != 0).sum(1) for block in blocks)
    assert isinstance(some, Tensor)
    return {"weight_density": some.to(blocks[0].dtype) / sum(block.shape[1] for block in blocks)}
