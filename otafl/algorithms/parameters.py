"""Handle the parameters of models as blocks, name -> [n, *shape]: steps that several methods share.

Most of them have one global model whose increments are averaged, the block "model" [S, P], and
some a model that each device keeps. A set of parameters at a device has a prefix, as in
"personal.weight0".
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.core.rng import Streams, declare_family
from otafl.models.base import Draw, Model, Shapes, unflatten

START = declare_family("init", __name__)


def draw_start(model: Model, streams: Streams) -> c.Tensors:
    """Return the model's random start, [S, *shape]."""
    return model.init(make_draw(streams))


def make_draw(streams: Streams, model: str = "") -> Draw:
    """Return where a start comes from: a stream for each parameter, of each model (`model`) where a
    method has several."""
    return lambda name, shape: streams.draw_uniform(START / f"{model}{name}", 0, shape).clone()


def add_prefix(prefix: str, params: c.Tensors) -> c.Tensors:
    """Return parameters as blocks of a device's state."""
    return {f"{prefix}.{name}": block for name, block in params.items()}


def select_prefix(devices: c.Tensors, prefix: str) -> c.Tensors:
    """Return the parameters with a prefix out of a device's state, the same tensors."""
    start = f"{prefix}."
    return {name.removeprefix(start): b for name, b in devices.items() if name.startswith(start)}


def make_shared_start(prefix: str, flat: Tensor, model: Model) -> c.Tensors:
    """Return the server's model [S, P] as the start of every device, [S, 1, *shape]."""
    return add_prefix(
        prefix, {name: b[:, None] for name, b in unflatten(flat, model.shapes).items()}
    )


def get_received_params(broadcast: c.Broadcast, model: Model) -> c.Tensors:
    """Return the broadcast model [n, P] as parameters: views of it, not to be trained in place (see
    `copy_params`)."""
    return unflatten(broadcast.tensors[c.MODEL], model.shapes)


def copy_received_params(broadcast: c.Broadcast, model: Model) -> c.Tensors:
    """Return the broadcast model as parameters to be trained in place."""
    return model.copy_trainable(get_received_params(broadcast, model))


def run_sgd_(model: Model, params: c.Tensors, rate: Tensor, context: c.LocalContext) -> Tensor:
    """Take the local steps by SGD in place, rate [n]; returns the mean loss [n]."""
    loss = torch.zeros_like(rate)
    for step in range(context.local_data.steps):
        loss += model.take_sgd_step_(params, context.local_data.draw_batch(step), rate)
    return loss / context.local_data.steps


def take_penalised_step_(
    model: Model,
    params: c.Tensors,
    centre: c.Tensors,
    batch: c.Batch,
    rate: Tensor,
    penalty: Tensor,
) -> Tensor:
    """Step w -= rate (grad f(w) + penalty (w - centre)) in place, rate and penalty [n]; returns the
    loss f [n] before it.

    With s = rate penalty < 1 this is (1 - s) (w - rate / (1 - s) grad f(w)) + s centre, which lets
    the model fuse its gradient with the step.
    """
    share = rate * penalty
    loss = model.take_sgd_step_(params, batch, rate / (1.0 - share))
    for name, block in params.items():
        block.lerp_(centre[name], c.unsqueeze_like(share, block))
    return loss


def build_increment_(new: c.Tensors, broadcast: c.Broadcast, shapes: Shapes) -> c.Payload:
    """Return one group with the increment from the broadcast parameters of these shapes to the new,
    [n, P], in the place of the broadcast ones."""
    flat = broadcast.tensors[c.MODEL]
    subtract_(unflatten(flat, shapes), new)
    return (c.Group({c.MODEL: flat}),)


def subtract_(old: c.Tensors, new: c.Tensors) -> None:
    """Put new - old in the place of the old parameters."""
    for name, block in old.items():
        torch.sub(new[name], block, out=block)


def build_model_payload(params: c.Tensors) -> c.Payload:
    """Return one group with the parameters themselves, [n, P], in memory of its own."""
    return (c.Group({c.MODEL: torch.cat([block.flatten(1) for block in params.values()], 1)}),)


def apply_mean_increment(
    server: c.Tensors, received: c.Received, hyper: c.Hyper, name: str = c.MODEL
) -> Tensor:
    """Return a block of the server's [S, P] after a step of `server_learning_rate` along the mean
    increment."""
    step = hyper["server_learning_rate"][:, None]
    return torch.addcmul(server[name], step, received.mean[0][name])


def make_flat_view(
    model: Model, flat: Tensor, owner: Literal["trial", "device"] = "trial"
) -> c.View:
    """Show models side by side, [S, P] (owner "trial") or [S * K, P], to be evaluated."""

    def unflatten_params(tensors: c.Tensors) -> c.Tensors:
        others = {name: block for name, block in tensors.items() if name != c.MODEL}
        return unflatten(tensors[c.MODEL], model.shapes) | others

    return c.View(
        {c.MODEL: flat},
        lambda blocks, x: model.logits(unflatten_params(blocks), x),
        owner,
        moments_fn=(lambda blocks, x: model.moments(unflatten_params(blocks), x))
        if model.batch_norms
        else None,
    )


def make_view(
    model: Model, params: c.Tensors, owner: Literal["trial", "device"] = "trial"
) -> c.View:
    """Show models [S, *shape] (owner "trial") or [S * K, *shape], to be evaluated."""
    return c.View(
        params, model.logits, owner, moments_fn=model.moments if model.batch_norms else None
    )


def make_device_view(model: Model, devices: c.Tensors, prefix: str) -> c.View:
    """Show each device's parameters with a prefix, [S, K, *shape], to be evaluated."""
    params = {name: block.flatten(0, 1) for name, block in select_prefix(devices, prefix).items()}
    return make_view(model, params, "device")
