"""A hypernetwork at the server that generates each device's model from an embedding (pFedHN).

The server generates the model of each device, which trains it and sends the increment. With the
increments the server takes a gradient step on the hypernetwork and on the embeddings. In the paper
one device takes part at a time. With several devices the hypernetwork follows their plain mean, and
each embedding its own device.

The hypernetwork is a chain of linear layers with ReLU between them, whose last layer has the width
of the model's size. Its bias starts at the model's start. Its weights start in proportion to the
size of the generated parameters (after Chang, Flokas, Lipson 2020), so that generated models start
like other models.

The personal model is the generated one, also for absent devices.

References
----------
Shamsian, Navon, Fetaya, Chechik 2021, "Personalized Federated Learning using Hypernetworks",
    Algorithm 1.
Chang, Flokas, Lipson 2020, "Principled Weight Initialization for Hypernetworks".
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind, Views
from otafl.algorithms.deliveries import (
    find_delivered,
    get_delivered,
    scatter_to_table,
)
from otafl.algorithms.parameters import draw_start, make_flat_view, train_increment
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams, declare_family
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, flatten

HYPERNETWORK = declare_family("pfedhn", __name__)

EMBEDDING = "embedding"


class PFedHN(Algorithm):
    r"""Personalised federated learning with a hypernetwork.

    The server's tensors are "embedding" [S, K, E], and "hyper_weightL" [S, M, N] and "hyper_biasL"
    [S, N] of each layer L of the hypernetwork. Devices have no state.

    Notes
    -----
    The model of device i is theta_i = h(v_i; phi), and its increment after local training Delta_i.
    The server takes a gradient step on half the squared distance to the trained model:

    .. math::

        \phi \leftarrow \phi + a \left( \frac{\partial \theta_i}{\partial \phi} \right)^T \Delta_i,
        \quad v_i \leftarrow v_i + b \left( \frac{\partial \theta_i}{\partial v_i} \right)^T
        \Delta_i

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    payload: ClassVar = PayloadKind("each")

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "keeps a row for each device at the server",
    }

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["pfedhn"] = "pfedhn"
        learning_rate: float = declare_stackable(0.01, gt=0)
        """step size of SGD on a device's model"""
        server_learning_rate: float = declare_stackable(1.0, gt=0)
        """step size of the hypernetwork along the mean over devices; ten steps of the paper for one
        device at a time, 0.01 with momentum 0.9, add up to the same"""
        embedding_learning_rate: float = declare_stackable(0.1, gt=0)
        """step size of a device's embedding; 0.01 with momentum 0.9 in the paper"""
        embedding: int = Field(32, ge=1)
        """length of a device's embedding"""
        hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((100, 100), min_length=1)
        """widths of the hypernetwork's hidden layers; one more layer gives the model"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.widths = (settings.embedding, *settings.hidden, model.num_params)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        params = draw_start(self.model, streams)
        size = {
            name: block.square().mean(tuple(range(1, block.dim())), keepdim=True).sqrt()
            for name, block in params.items()
        }
        scale = flatten({name: size[name].expand_as(block) for name, block in params.items()})
        table = (self.num_devices, self.widths[0])
        server = {EMBEDDING: streams.draw_normal(HYPERNETWORK / EMBEDDING, 0, table).clone()}
        for layer, sides in enumerate(itertools.pairwise(self.widths)):
            weight, bias = (
                2.0 * streams.draw_uniform(HYPERNETWORK / f"{kind}{layer}", 0, shape) - 1.0
                for kind, shape in (("weight", sides), ("bias", sides[1:]))
            )
            server[f"hyper_weight{layer}"] = weight / sides[0] ** 0.5
            server[f"hyper_bias{layer}"] = bias / sides[0] ** 0.5
        server[f"hyper_weight{layer}"] *= scale[:, None]
        server[f"hyper_bias{layer}"] = flatten(params)
        return server, {}

    def forward(self, server: c.Tensors) -> list[Tensor]:
        """Compute the inputs [S, K, M] of the hypernetwork's layers, then the models [S, K, P]."""
        seen = [server[EMBEDDING]]
        for layer in range(len(self.widths) - 1):
            z = torch.baddbmm(
                server[f"hyper_bias{layer}"][:, None], seen[-1], server[f"hyper_weight{layer}"]
            )
            seen.append(z if layer == len(self.widths) - 2 else z.relu_())
        return seen

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        models = self.forward(server)[-1].flatten(0, 1)
        return c.Broadcast({c.MODEL: models[cohort.flat_index]}, per_device=True)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        rate = context.gather_hyper("learning_rate")
        return {}, *train_increment(self.model, broadcast, rate, context)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        cohort, hyper = context.cohort, context.hyper
        each, delivered_mask = get_delivered(received, 0)
        # Delta, 0 without a delivery
        by_model = scatter_to_table(each[c.MODEL], delivered_mask, cohort)
        count = find_delivered(delivered_mask, cohort).sum(1)
        step = (hyper["server_learning_rate"] / count.clamp_min(1.0))[:, None, None]
        seen, new, by = self.forward(server), {}, by_model
        for layer in range(len(self.widths) - 2, -1, -1):
            weight, bias = server[f"hyper_weight{layer}"], server[f"hyper_bias{layer}"]
            new[f"hyper_weight{layer}"] = torch.addcmul(weight, step, torch.bmm(seen[layer].mT, by))
            new[f"hyper_bias{layer}"] = torch.addcmul(bias, step[:, 0], by.sum(1))
            by = torch.bmm(by, weight.mT)
            if layer:
                by = torch.ops.aten.threshold_backward(by, seen[layer], 0)
        own_step = hyper["embedding_learning_rate"][:, None, None]
        new[EMBEDDING] = torch.addcmul(server[EMBEDDING], own_step, by)
        return {name: new[name] for name in server}

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        models = self.forward(server)[-1].flatten(0, 1)
        return {"personal": make_flat_view(self.model, models, "device")}
