"""pFedHN: personalised federated learning using hypernetworks.

Shamsian, Navon, Fetaya, Chechik 2021, Algorithm 1. A hypernetwork at the server generates the model
of each device from an embedding of it, theta_i = h(v_i; phi). A device trains theta_i to theta~_i,
and with the change Delta_i = theta~_i - theta_i the server takes a gradient step on
|h(v_i; phi) - theta~_i|^2 / 2:

    phi <- phi + a (d theta_i / d phi)^T Delta_i,   v_i <- v_i + b (d theta_i / d v_i)^T Delta_i.

The paper lets one device take part at a time; of more, phi follows the plain mean, each v_i its own
device. The hypernetwork is a chain of linear layers with ReLU between them, whose last layer's
width is the model's size. Its bias starts at the model's start, its weights in proportion to the
size of the parameters that they generate (after Chang, Flokas, Lipson 2020, "Principled Weight
Initialization for Hypernetworks"), so that generated models start as models do.

A personal model is h(v_i; phi), for absent devices too.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from otafl.algorithms.config_exchange import PFedHNConfig
from otafl.algorithms.device_tables import arrived, flat_personal_view, heard, spread
from otafl.algorithms.parameters import MODEL, copied, increment, received_params
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten

EMBEDDING = "embedding"


class PFedHN:
    """Server blocks: "embedding" [S, K, E]; "hyper_weight<l>" [S, M, N] and "hyper_bias<l>" [S, N]
    of each layer l of the hypernetwork. No device state."""

    def __init__(self, config: PFedHNConfig, model: Model, devices: int) -> None:
        self.model = model
        self.devices = devices
        self.widths = (config.embedding, *config.hidden, model.size)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        params = start(self.model, streams)
        size = {
            name: block.square().mean(tuple(range(1, block.dim())), keepdim=True).sqrt()
            for name, block in params.items()
        }
        scale = flatten({name: size[name].expand_as(block) for name, block in params.items()})
        server = {
            EMBEDDING: streams.normal("pfedhn/embedding", 0, (self.devices, self.widths[0])).clone()
        }
        for layer, sides in enumerate(itertools.pairwise(self.widths)):
            weight, bias = (
                2.0 * streams.uniform(f"pfedhn/{kind}{layer}", 0, shape) - 1.0
                for kind, shape in (("weight", sides), ("bias", sides[1:]))
            )
            server[f"hyper_weight{layer}"] = weight / sides[0] ** 0.5
            server[f"hyper_bias{layer}"] = bias / sides[0] ** 0.5
        server[f"hyper_weight{layer}"] *= scale[:, None]
        server[f"hyper_bias{layer}"] = flatten(params)
        return server, {}

    def forward(self, server: Blocks) -> list[Tensor]:
        """What each layer of the hypernetwork sees, [S, K, M], and last the models [S, K, P]."""
        seen = [server[EMBEDDING]]
        for layer in range(len(self.widths) - 1):
            z = torch.baddbmm(
                server[f"hyper_bias{layer}"][:, None], seen[-1], server[f"hyper_weight{layer}"]
            )
            seen.append(z if layer == len(self.widths) - 2 else z.relu_())
        return seen

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        models = self.forward(server)[-1].flatten(0, 1)
        return Broadcast({MODEL: models[cohort.cell]}, per_device=True)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        received = received_params(broadcast, self.model)
        params = copied(received)
        rate = hyper["learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
        return {}, increment(params, received), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        each, came = arrived(received, 0)
        by_model = spread(each[MODEL], came, cohort)  # Delta, 0 where nothing came
        count = heard(came, cohort).sum(1)
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

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"personal": flat_personal_view(self.model, self.forward(server)[-1])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
