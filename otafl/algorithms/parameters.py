"""What personalised methods have in common: one global model whose increments are averaged, and
models that each device keeps. Plain functions of parameters as blocks, name -> [n, *shape].

A set of parameters at a device has a prefix, as in "personal.weight0".
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import (
    MODEL,
    Batch,
    Blocks,
    Broadcast,
    Group,
    Hyper,
    LocalContext,
    Payload,
    Received,
    View,
)
from otafl.core.rng import Streams
from otafl.models.base import Draw, Model, flatten, unflatten


def start(model: Model, streams: Streams) -> Blocks:
    """The model's random start, [S, *shape]."""
    return model.init(draws(streams))


def draws(streams: Streams, model: str = "") -> Draw:
    """Where a start comes from: a stream for each parameter, of each model (`model`) where a method
    has several."""
    return lambda name, shape: streams.uniform(f"init/{model}{name}", 0, shape).clone()


def named(prefix: str, params: Blocks) -> Blocks:
    """Parameters as blocks of a device's state."""
    return {f"{prefix}.{name}": block for name, block in params.items()}


def own(devices: Blocks, prefix: str) -> Blocks:
    """The parameters with a prefix out of a device's state, the same tensors."""
    start = f"{prefix}."
    return {name.removeprefix(start): b for name, b in devices.items() if name.startswith(start)}


def shared_start(prefix: str, flat: Tensor, model: Model) -> Blocks:
    """The server's model [S, P] as the start of every device, [S, 1, *shape]."""
    return named(prefix, {name: b[:, None] for name, b in unflatten(flat, model.shapes).items()})


def copied(params: Blocks) -> Blocks:
    """Parameters in memory of their own, contiguous as batched products in place need them."""
    return {name: b.clone(memory_format=torch.contiguous_format) for name, b in params.items()}


def received_params(broadcast: Broadcast, model: Model) -> Blocks:
    """The broadcast model [n, P] as parameters: views of it, not to be trained in place (see
    `copied`)."""
    return unflatten(broadcast.blocks[MODEL], model.shapes)


def column(value: Tensor, like: Tensor) -> Tensor:
    """A number a row [n], ready to multiply blocks [n, *shape]."""
    return value.view(-1, *[1] * (like.dim() - 1))


def step_(params: Blocks, along: Blocks, size: Tensor) -> None:
    """params -= size [n] * along, in place."""
    for name, block in along.items():
        params[name].addcmul_(block, column(size, block), value=-1.0)


def pull_(params: Blocks, centre: Blocks, share: Tensor) -> None:
    """params -= share [n] * (params - centre), in place: a gradient step on a quadratic penalty."""
    for name, block in params.items():
        block.lerp_(centre[name], column(share, block))


def penalised_sgd_(
    model: Model, params: Blocks, centre: Blocks, batch: Batch, rate: Tensor, penalty: Tensor
) -> Tensor:
    """w -= rate (grad f(w) + penalty (w - centre)) in place, rate and penalty [n]; returns the loss
    f [n] before it.

    With s = rate penalty < 1 this is (1 - s) (w - rate / (1 - s) grad f(w)) + s centre, which lets
    the model fuse its gradient with the step.
    """
    share = rate * penalty
    loss = model.sgd_(params, batch, rate / (1.0 - share))
    pull_(params, centre, share)
    return loss


def sgd_(model: Model, params: Blocks, rate: Tensor, context: LocalContext) -> Tensor:
    """SGD over the local steps in place, rate [n]; returns the mean loss [n]."""
    loss = torch.zeros_like(rate)
    for step in range(context.work.steps):
        loss += model.sgd_(params, context.work.batch(step), rate)
    return loss / context.work.steps


def increment(new: Blocks, old: Blocks) -> Payload:
    """One group with the increment from the old parameters to the new, [n, P]."""
    return (Group({MODEL: flatten({name: new[name] - block for name, block in old.items()})}),)


def averaged(server: Blocks, received: Received, hyper: Hyper) -> Tensor:
    """The server's model [S, P] after a step of `server_learning_rate` along the mean increment."""
    step = hyper["server_learning_rate"][:, None]
    return torch.addcmul(server[MODEL], step, received.mean[0][MODEL])


def flat_view(model: Model, flat: Tensor, owner: Literal["trial", "device"] = "trial") -> View:
    """Models side by side, [S, P] (owner "trial") or [S * K, P], to be evaluated."""

    def params(blocks: Blocks) -> Blocks:
        others = {name: block for name, block in blocks.items() if name != MODEL}
        return unflatten(blocks[MODEL], model.shapes) | others

    return View(
        {MODEL: flat},
        lambda blocks, x: model.logits(params(blocks), x),
        owner,
        moments=(lambda blocks, x: model.moments(params(blocks), x)) if model.batch_norms else None,
    )


def view_of(model: Model, params: Blocks, owner: Literal["trial", "device"] = "trial") -> View:
    """Models [S, *shape] (owner "trial") or [S * K, *shape], to be evaluated."""
    return View(params, model.logits, owner, moments=model.moments if model.batch_norms else None)


def device_view(model: Model, devices: Blocks, prefix: str) -> View:
    """Each device's parameters with a prefix, [S, K, *shape], to be evaluated."""
    params = {name: block.flatten(0, 1) for name, block in own(devices, prefix).items()}
    return view_of(model, params, "device")
