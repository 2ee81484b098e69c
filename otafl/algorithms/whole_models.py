"""What methods have in common whose devices start from the broadcast model and send the model
itself, a block for each parameter: plain functions of the parameters as blocks [.., *shape].

Weights are the matrices of a model's layers, or a module's parameters of two and more dimensions;
everything else is called a bias.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.algorithms.parameters import draws, start, view_of  # noqa: F401
from otafl.core.contracts import Blocks, Group, Hyper, Payload, Received, View
from otafl.models.base import LayeredModel, Model

BiasMode = Literal["ideal", "ota"]


def weights_of(model: Model) -> tuple[str, ...]:
    """Names of a model's weights."""
    if isinstance(model, LayeredModel):
        return tuple(layer.weight for layer in model.layers)
    return tuple(name for name, shape in model.shapes.items() if len(shape) >= 2)


def as_matrix(weight: Tensor) -> Tensor:
    """A weight [n, M, ...] as matrices [n, M, N]: a convolution's filters are its rows."""
    return weight.flatten(2)


def step_size(hyper: Hyper, round: int) -> Tensor:
    """[S]: learning_rate / (1 + decay t), the paper's q / (nu + t) at q = nu learning_rate and nu
    = 1 / decay."""
    return hyper["learning_rate"] / (1.0 + hyper["decay"] * round)


def payload_of(params: Blocks, weights: tuple[str, ...], bias_mode: BiasMode) -> Payload:
    """Weights over the uplink; biases in a second group, free of error or over the uplink."""
    matrices = {name: params[name] for name in weights}
    biases = {name: block for name, block in params.items() if name not in matrices}
    groups = []
    if matrices:
        groups.append(Group(matrices))
    if biases and bias_mode == "ota":
        groups.append(Group(biases))
    elif biases:
        reason = "the paper describes no uplink of the biases"
        groups.append(Group(biases, route="ideal", reason=reason))
    return tuple(groups)


def received_model(received: Received, model: Model) -> Blocks:
    """The weighted mean of what was sent, [S, *shape], in the model's order."""
    mean: Blocks = {}
    for blocks in received.mean:
        mean |= blocks
    return {name: mean[name] for name in model.shapes}


def global_view(model: Model, server: Blocks) -> dict[str, View]:
    return {"global": view_of(model, server)}


def density(server: Blocks, weights: tuple[str, ...]) -> dict[str, Tensor]:
    """ "weight_density" [S]: share of the global weights that are not zero."""
    blocks = [server[name].flatten(1) for name in weights]
    some = sum((block != 0).sum(1) for block in blocks)
    assert isinstance(some, Tensor)
    return {"weight_density": some.to(blocks[0].dtype) / sum(block.shape[1] for block in blocks)}
