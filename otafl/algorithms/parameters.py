"""Steps on the parameters of models, name -> [n, *shape], that several methods share.

Most methods have one global model whose increments are averaged, the tensor "model" [S, P], and
some have a model at each device. Parameters at a device have a prefix, as in "personal.weight0".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from otafl.core import contracts as c
from otafl.core.rng import Round, Streams, declare_family
from otafl.models.base import Draw, Model, Shapes, compute_increment, unflatten
from otafl.models.mlp import choose_kernel

START = declare_family("init", __name__)


def draw_start(model: Model, streams: Streams) -> c.Tensors:
    """Draw the model's start, with the weights of `model.start` where it has them.

    Parameters
    ----------
    model : Model
        Model.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        Parameters.
    """
    params = model.init(make_draw(streams))
    for name, given in model.start_params.items():
        params[name] = given.to(params[name]).expand_as(params[name]).clone()
    return params


def make_draw(streams: Streams, model: str = "") -> Draw:
    """Make the function that draws a start, with a random stream for each parameter.

    Parameters
    ----------
    streams : Streams
        Source of random numbers.
    model : str
        Prefix of the streams, for a method with several models.

    Returns
    -------
    Draw
        Function of name and shape that returns uniform numbers [S, *shape].
    """
    return lambda name, shape: streams.draw_uniform(START / f"{model}{name}", 0, shape).clone()


def add_prefix(prefix: str, params: c.Tensors) -> c.Tensors:
    """Return parameters by their names in a device's state."""
    return {f"{prefix}.{name}": block for name, block in params.items()}


def select_prefix(devices: c.Tensors, prefix: str) -> c.Tensors:
    """Return the parameters with a prefix from a device's state, the same tensors."""
    start = f"{prefix}."
    return {name.removeprefix(start): b for name, b in devices.items() if name.startswith(start)}


def get_received_params(broadcast: c.Broadcast, model: Model) -> c.Tensors:
    """Return the broadcast model [n, P] as parameters, views that must not be trained in place.

    Use `copy_received_params` for training.
    """
    return unflatten(broadcast.tensors[c.MODEL], model.shapes)


def copy_received_params(broadcast: c.Broadcast, model: Model) -> c.Tensors:
    """Copy the broadcast model as parameters to train in place."""
    return model.copy_trainable(get_received_params(broadcast, model))


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


def run_sgd_(model: Model, params: c.Tensors, rate: Tensor, context: c.LocalContext) -> Tensor:
    """Train by SGD for all local steps, in place.

    Parameters
    ----------
    model : Model
        Model.
    params : dict of str to Tensor [n, *shape]
        Parameters, changed in place.
    rate : Tensor [n]
        Step size.
    context : LocalContext
        Rows and their data.

    Returns
    -------
    Tensor [n]
        Mean loss over the steps.
    """
    return run_steps(context, lambda batch: model.take_sgd_step_(params, batch, rate))


def run_steps(context: c.LocalContext, take_step_: Callable[[c.Batch], Tensor]) -> Tensor:
    """Take all local steps, each on its minibatch, and return the mean of their losses [n].

    Parameters
    ----------
    context : LocalContext
        Rows and their data.
    take_step_ : callable
        Function that takes a step on a minibatch in place and returns the loss [n] before it.

    Returns
    -------
    Tensor [n]
        Mean loss over the steps.
    """
    work = context.local_data
    loss = torch.zeros_like(context.cohort.weight)
    for step in range(work.steps):
        loss += take_step_(work.draw_batch(step))
    return loss / work.steps


def train_increment(
    model: Model, broadcast: c.Broadcast, rate: Tensor, context: c.LocalContext
) -> tuple[c.Payload, Tensor]:
    """Train the broadcast model by SGD for all local steps, without writing to it.

    Parameters
    ----------
    model : Model
        Model.
    broadcast : Broadcast
        Received parameters.
    rate : Tensor [n]
        Step size.
    context : LocalContext
        Rows and their data.

    Returns
    -------
    tuple of Group
        Increment [n, P].
    Tensor [n]
        Mean loss over the steps.
    """
    received, reserve = broadcast.tensors[c.MODEL], context.reserve_fn
    train = choose_kernel(model, received, context.local_data)
    samples = None if train is None else context.local_data.list_samples()
    out = None if reserve is None else reserve(received)
    if out is None:
        out = torch.empty_like(received, memory_format=torch.contiguous_format)
    if train is not None and samples is not None:
        loss = train(samples, received, rate, out)
    else:
        params = copy_received_params(broadcast, model)
        loss = run_sgd_(model, params, rate, context)
        compute_increment(params, received, model.shapes, out)
    return (c.Group({c.MODEL: out}),), loss


def take_penalised_step_(
    model: Model,
    params: c.Tensors,
    centre: c.Tensors,
    batch: c.Batch,
    rate: Tensor,
    penalty: Tensor,
) -> Tensor:
    r"""Take an SGD step under a quadratic penalty, in place.

    Parameters
    ----------
    model : Model
        Model.
    params, centre : dict of str to Tensor [n, *shape]
        Parameters w, changed in place, and the centre w_0 of the penalty.
    batch : Batch
        Minibatch of each row.
    rate, penalty : Tensor [n]
        Step size eta and weight lambda.

    Returns
    -------
    Tensor [n]
        Loss f before the step.

    Notes
    -----
    .. math::

        w \leftarrow w - \eta \left( \nabla f(w) + \lambda (w - w_0) \right)

    With s = eta lambda < 1 this is (1 - s) (w - eta / (1 - s) grad f(w)) + s w_0, in which the
    model can fuse its gradient with the step.
    """
    share = rate * penalty
    loss = model.take_sgd_step_(params, batch, rate / (1.0 - share))
    for name, block in params.items():
        block.lerp_(centre[name], c.unsqueeze_like(share, block))
    return loss


def train_penalised(
    model: Model,
    broadcast: c.Broadcast,
    rate: Tensor,
    penalty: Tensor,
    context: c.LocalContext,
) -> tuple[c.Tensors, Tensor]:
    """Train the broadcast model under a penalty on the distance to it, without writing to it.

    Parameters
    ----------
    model : Model
        Model.
    broadcast : Broadcast
        Received parameters, the start and the centre of the penalty.
    rate, penalty : Tensor [n]
        Step size and weight of the penalty.
    context : LocalContext
        Rows and their data.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        Trained parameters.
    Tensor [n]
        Mean loss over the steps, without the penalty.
    """
    centre = get_received_params(broadcast, model)
    params = model.copy_trainable(centre)
    loss = run_steps(
        context,
        lambda batch: take_penalised_step_(model, params, centre, batch, rate, penalty),
    )
    return params, loss


def build_increment(new: c.Tensors, broadcast: c.Broadcast, shapes: Shapes) -> c.Payload:
    """Build a payload of one group with the increment to the broadcast parameters.

    Parameters
    ----------
    new : dict of str to Tensor [n, *shape]
        Trained parameters.
    broadcast : Broadcast
        Received parameters.
    shapes : dict of str to tuple of int
        Shapes of the received parameters.

    Returns
    -------
    tuple of Group
        Increment [n, P].
    """
    return (c.Group({c.MODEL: compute_increment(new, broadcast.tensors[c.MODEL], shapes)}),)


def build_model_payload(params: c.Tensors) -> c.Payload:
    """Build a payload of one group with the parameters [n, P], in memory of its own."""
    return (c.Group({c.MODEL: torch.cat([block.flatten(1) for block in params.values()], 1)}),)


def apply_mean_increment(
    server: c.Tensors, received: c.Received, hyper: c.Hyper, name: str = c.MODEL
) -> Tensor:
    """Compute the server's model after a step along the mean increment.

    Parameters
    ----------
    server : dict of str to Tensor [S, P]
        State of the server.
    received : Received
        Aggregates, with the mean increment in the first group.
    hyper : mapping of str to Tensor [S]
        Stackable settings, with `server_learning_rate`.
    name : str
        Name of the tensor.

    Returns
    -------
    Tensor [S, P]
        Old tensor plus `server_learning_rate` times the mean increment.
    """
    step = hyper["server_learning_rate"][:, None]
    return torch.addcmul(server[name], step, received.mean[0][name])


def make_flat_view(
    model: Model, flat: Tensor, owner: Literal["trial", "device"] = "trial"
) -> c.View:
    """Build the view of models with parameters side by side.

    Parameters
    ----------
    model : Model
        Model.
    flat : Tensor [S, P] or [S * K, P]
        Parameters.
    owner : {"trial", "device"}
        Whether there is one model for each trial or one for each device.

    Returns
    -------
    View
        The view.
    """

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
    """Build the view of models.

    Parameters
    ----------
    model : Model
        Model.
    params : dict of str to Tensor [S, *shape] or [S * K, *shape]
        Parameters.
    owner : {"trial", "device"}
        Whether there is one model for each trial or one for each device.

    Returns
    -------
    View
        The view.
    """
    return c.View(
        params, model.logits, owner, moments_fn=model.moments if model.batch_norms else None
    )


def make_device_view(model: Model, devices: c.Tensors, prefix: str) -> c.View:
    """Build the view of the models in the devices' state.

    Parameters
    ----------
    model : Model
        Model.
    devices : dict of str to Tensor [S, K, *shape]
        State of the devices.
    prefix : str
        Prefix of the parameters.

    Returns
    -------
    View
        The view, with the owner "device".
    """
    params = {name: block.flatten(0, 1) for name, block in select_prefix(devices, prefix).items()}
    return make_view(model, params, "device")
