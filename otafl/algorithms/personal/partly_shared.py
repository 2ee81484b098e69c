"""Averaging of a part of the model, of which each device keeps the rest for itself (FedBN, FedRep).

The server's tensor "model" [S, P] holds the shared parameters side by side. The device's tensors
"personal.NAME" are its own parameters. The personal model is the averaged parameters with the
device's own, as the device has them after aggregation. There is no global model, because the
server does not have all parameters.

FedBN   Devices train all parameters by local SGD, and keep those of normalisation layers.
FedRep  Devices keep the last layer, the head h_i. With the received body phi, all layers before it,
        fixed, a device takes SGD steps on its head. With the new head fixed, it takes SGD steps on
        the body, on minibatches of its own.

References
----------
Li, Jiang, Zhang, Kamp, Dou 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization", Algorithm 1.
Collins, Hassani, Mokhtari, Shakkottai 2021, "Exploiting Shared Representations for Personalized
    Federated Learning", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, PersonalSettings, Views
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment,
    draw_start,
    make_view,
    run_sgd_,
    run_steps,
    select_prefix,
)
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model, copy_params, descend_, differentiate, flatten, unflatten

LOCAL_PREFIX = "personal"


class PartlyShared(Algorithm):
    """A method whose devices keep some parameters for themselves.

    Parameters
    ----------
    settings : Settings
        Settings of the method.
    model : Model
        Model.
    devices : int
        Number of devices.
    kept : collection of str
        Names of the parameters that devices keep.
    """

    averages_increments: ClassVar[bool] = True

    is_per_device = True

    def __init__(self, settings: Any, model: Model, devices: int, kept: Collection[str]) -> None:
        super().__init__(settings, model, devices)
        self.kept = tuple(kept)
        self.shapes = self.sent_shapes = {n: s for n, s in model.shapes.items() if n not in kept}

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        params = draw_start(self.model, streams)
        own = {name: params.pop(name)[:, None] for name in self.kept}
        return {c.MODEL: flatten(params)}, add_prefix(LOCAL_PREFIX, own)

    def join_params(self, broadcast: c.Broadcast, devices: c.Tensors) -> c.Tensors:
        """Join a copy of the received parameters and the device's own, to train in place."""
        shared = copy_params(unflatten(broadcast.tensors[c.MODEL], self.shapes))
        return shared | select_prefix(devices, LOCAL_PREFIX)

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the view of the server's shared parameters with each device's own."""
        kept = select_prefix(devices, LOCAL_PREFIX)
        num_devices = next(iter(kept.values())).shape[1]
        shared = {
            name: block[:, None].expand(-1, num_devices, *block.shape[1:])
            for name, block in unflatten(server[c.MODEL], self.shapes).items()
        }
        both = {name: block.flatten(0, 1) for name, block in (shared | kept).items()}
        return {"personal": make_view(self.model, both, "device")}


class FedBn(PartlyShared):
    """Federated averaging with local normalisation layers.

    The server's tensor "model" [S, P] holds all parameters except those of normalisation layers,
    which are the device's tensors "personal.NAME".

    Whatever the uplink does, devices keep the parameters of normalisation layers: they are
    never sent.

    Examples
    --------
    A scenario with `algorithm: fedbn` and `model: conv_net`, which has normalisation layers.
    """

    class Settings(AveragedSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.name": "conv_net",
            "model.channels": [8, 16],
        }

        name: Literal["fedbn"] = "fedbn"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices, model.norms)
        if not model.norms:
            raise UserError(
                "algorithm.name: 'fedbn' needs a model with normalisation layers, and the model "
                "has none; use conv_net, resnet, vgg, a torch.nn.Module with GroupNorm or "
                "LayerNorm, or algorithm: fedavg"
            )

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        params = self.join_params(broadcast, devices)
        loss = run_sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        kept = add_prefix(LOCAL_PREFIX, {name: params[name] for name in self.model.norms})
        return kept, build_increment(params, broadcast, self.shapes), loss


class FedRep(PartlyShared):
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

    class Settings(PersonalSettings):
        name: Literal["fedrep"] = "fedrep"
        head_factor: int = Field(1, ge=1)
        """number of steps on the head for each step on the body, of which there are
        training.local_steps"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.head = model.head
        super().__init__(settings, model, devices, self.head)
        if not self.shapes:
            raise UserError(
                "algorithm.name: 'fedrep' needs a model with a layer before the last one, and the "
                "model has one layer; use mlp, cnn or algorithm: local_only"
            )

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        with torch.inference_mode(False):  # autograd saves no inference tensors
            params = self.join_params(broadcast, devices)
        model, work = self.model, context.local_data
        rate = context.gather_hyper("learning_rate")
        own_rate = context.gather_hyper("personal_learning_rate")

        def compute_objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
            loss = model.loss.compute_mean(model.score_batch(params | leaves, batch), batch)
            return loss, loss

        head = {name: params[name] for name in self.head}
        for draw in range(1, 1 + self.settings.head_factor):
            for step in range(work.steps):  # no activation of the body is stored
                batch = work.draw_batch(step, draw)
                descend_(head, differentiate(compute_objective, head, batch)[1], own_rate)
        head = {name: block.clone() for name, block in head.items()}

        def take_step_(batch: c.Batch) -> Tensor:
            loss = model.take_sgd_step_(params, batch, rate)
            for name, block in head.items():  # cheaper than a step that leaves it out
                params[name].copy_(block)
            return loss

        loss = run_steps(context, take_step_)
        return (
            add_prefix(LOCAL_PREFIX, head),
            build_increment(params, broadcast, self.shapes),
            loss,
        )

    def count_flops(self, workload: c.Workload) -> np.ndarray:
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
