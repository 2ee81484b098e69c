"""Averaging of all layers except the last, which each device keeps for itself (FedRep).

The head h_i is the last layer of device i, and the body phi all layers before it. With the received
body fixed, a device takes SGD steps on its head. With the new head fixed, it takes SGD steps on the
body, on minibatches of its own. It sends the increment of the body, and the server broadcasts only
the body.

The personal model is the averaged body with the device's head, as the device has it after
aggregation. There is no global model, because the server has no head.

References
----------
Collins, Hassani, Mokhtari, Shakkottai 2021, "Exploiting Shared Representations for Personalized
    Federated Learning", Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.parameters import add_prefix, build_increment_
from otafl.algorithms.personal.partly_shared import (
    LOCAL_PREFIX,
    get_shared_shapes,
    join_params,
    make_personal_view,
    split_start,
)
from otafl.algorithms.shared_settings import AveragedSettings, declare_personal_rate
from otafl.core.contracts import Batch, Broadcast, Hyper, LocalContext, Tensors, Workload
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model, descend_, differentiate


def find_head(model: Model) -> tuple[str, ...]:
    """Find the parameters of the last layer.

    These are the last parameter of two or more dimensions, and those after it.

    Parameters
    ----------
    model : Model
        Model with several layers.

    Returns
    -------
    tuple of str
        Names of the parameters.

    Raises
    ------
    UserError
        If the model has only one layer.
    """
    if len(model.head) == len(model.shapes):
        raise UserError(
            "algorithm.name: 'fedrep' needs a model with a layer before the last one, and the "
            "model has one layer; use mlp, cnn or algorithm: local_only"
        )
    return model.head


def compute_head_gradients(
    model: Model, params: Tensors, head: tuple[str, ...], batch: Batch
) -> Tensors:
    """Compute the gradients of the loss by the head only.

    No activation of the body's forward pass is stored.

    Parameters
    ----------
    model : Model
        Model.
    params : dict of str to Tensor [n, *shape]
        All parameters.
    head : tuple of str
        Names of the head's parameters.
    batch : Batch
        Minibatch of each row.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        Gradients.
    """

    def compute_objective(leaves: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
        scores = model.score_batch(params | leaves, batch)
        loss = model.loss.compute_mean(scores, batch)
        return loss, loss

    return differentiate(compute_objective, {name: params[name] for name in head}, batch)[1]


class FedRep(Algorithm):
    r"""Federated learning of a shared representation.

    The server's tensor "model" [S, P] is the body. The device's tensors "personal.NAME" are the
    head.

    Whatever the uplink does, devices keep the head: it is never sent.

    Notes
    -----
    A device alternates between the two parts, here as single steps:

    .. math::

        h_i \leftarrow h_i - \eta_p \nabla_h f_i(\phi, h_i), \quad \phi_i \leftarrow \phi_i - \eta
        \nabla_\phi f_i(\phi_i, h_i)

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_dnn.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["fedrep"] = "fedrep"
        personal_learning_rate: float = declare_personal_rate()
        head_factor: int = Field(1, ge=1)
        """number of steps on the head for each step on the body, of which there are
        training.local_steps"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.head = find_head(model)
        self.shapes = self.sent_shapes = get_shared_shapes(model, self.head)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        return split_start(self.model, self.head, streams)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        with torch.inference_mode(False):  # autograd saves no inference tensors
            params = join_params(broadcast, devices, self.shapes)
        work = context.local_data
        rate, own_rate = (
            context.gather_hyper("learning_rate"),
            context.gather_hyper("personal_learning_rate"),
        )
        for draw in range(1, 1 + self.settings.head_factor):
            for step in range(work.steps):
                batch = work.draw_batch(step, draw)
                descend_(
                    params, compute_head_gradients(self.model, params, self.head, batch), own_rate
                )
        head = {name: params[name].clone() for name in self.head}
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.take_sgd_step_(params, work.draw_batch(step), rate)
            for name, block in head.items():  # cheaper than a step that leaves it out
                params[name].copy_(block)
        sent = build_increment_(params, broadcast, self.shapes)
        return add_prefix(LOCAL_PREFIX, head), sent, loss / work.steps

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        return {"personal": make_personal_view(self.model, server, devices, self.shapes)}

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the operations of the steps on head and body.

        A step on the head is a forward pass and the gradient by its weight, which a step on the
        body leaves out.
        """
        sizes = [math.prod(self.model.shapes[name]) for name in self.head]
        shapes = (self.model.shapes[name] for name in self.head)
        by_head = 2.0 * sum(math.prod(shape) for shape in shapes if len(shape) >= 2)
        head, body = sum(sizes), self.model.num_params - sum(sizes)
        model, batch = self.model, workload.effective_batch_size
        on_head = model.count_forward_flops(batch) + by_head * batch + 2.0 * head
        on_body = model.count_training_flops(batch) - by_head * batch + 2.0 * body
        return workload.num_steps * (self.settings.head_factor * on_head + on_body) + body
