"""FedAMP and HeurFedAMP: federated attentive message passing.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang 2021, "Personalized Cross-Silo Federated Learning on Non-IID
Data", Algorithm 1. The server keeps the model w_i of each device and mixes a cloud model for each,

    u_i = sum_j xi_ij w_j,   xi_ij = alpha_k A'(|w_i - w_j|^2) for j != i,   sum_j xi_ij = 1,
    w_i = argmin_w F_i(w) + lambda / (2 alpha_k) |w - u_i|^2,

A(x) = 1 - exp(-x / sigma), the second solved by a few gradient steps on each minibatch, from the
device's model. A' is at most 1 / sigma, so alpha_k = attention sigma / K keeps all weights positive
whatever the models are. HeurFedAMP takes xi_ij in proportion to exp(cosine_scale cos(w_i, w_j)),
and xi_ii as it is set.

Sent is the model itself, which the server keeps: an increment to a mixture of the round would be
added to the wrong one where it arrives late. Of a device that was never heard the server knows the
start, which is its model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_exchange import FedAMPConfig
from otafl.algorithms.device_tables import arrived, rewritten
from otafl.algorithms.parameters import (
    MODEL,
    device_view,
    named,
    own,
    received_params,
    shared_start,
)
from otafl.algorithms.prox import gradient_steps
from otafl.algorithms.whole_models import start
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten
from otafl.models.span import difference, form_of


class FedAMP:
    """Server blocks: "models" [S, K, P], of each device the last that came; "cloud" [S, K, P], the
    mixtures u_i. Device blocks "personal.<name>": w_i."""

    def __init__(self, config: FedAMPConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.devices = devices

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        flat = flatten(start(self.model, streams))
        table = flat[:, None].repeat(1, self.devices, 1)
        server = {"models": table, "cloud": table.clone()}
        return server, shared_start("personal", flat, self.model)

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        cloud = server["cloud"].flatten(0, 1)
        return Broadcast({MODEL: cloud[cohort.cell]}, per_device=True)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        rate, penalty = (hyper[n][cohort.trial] for n in ("learning_rate", "penalty"))
        form = form_of(self.model)
        w = form.hold(own(devices, "personal"))
        u = form.hold(received_params(broadcast, self.model))
        pull, loss = None, torch.zeros_like(rate)
        for step in range(work.steps):
            pull = difference(u, w, out=pull)
            span = form.span(work.batch(step), w, pull)
            centre = span.origin + span.directions[0]
            theta, first = gradient_steps(
                span, span.origin, centre, rate, penalty, self.config.prox_steps
            )
            span.write_(theta, w)
            loss += first
        params = form.blocks(w)
        sent = torch.cat([block.flatten(1) for block in params.values()], 1)
        return named("personal", params), (Group({MODEL: sent}),), loss / work.steps

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
        models = rewritten(server["models"], each[MODEL], came, cohort)
        return {"models": models, "cloud": torch.bmm(self.weights(models, hyper), models)}

    def weights(self, models: Tensor, hyper: Hyper) -> Tensor:
        """xi [S, K, K] for models [S, K, P]."""
        if self.config.weights == "kernel":
            others = kernel_weights(models, hyper["sigma"], hyper["attention"])
        else:
            others = cosine_weights(models, hyper["cosine_scale"], hyper["self_weight"])
        return others + torch.diag_embed(1.0 - others.sum(2))  # the weights sum to one

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"personal": device_view(self.model, devices, "personal")}

    def flops(self, samples: int) -> float:
        return self.config.prox_steps * self.model.training_flops(samples)


def kernel_weights(models: Tensor, sigma: Tensor, attention: Tensor) -> Tensor:
    """xi_ij [S, K, K] for j != i, 0 on the diagonal."""
    centred = models - models.mean(1, keepdim=True)  # or small distances drown in large norms
    gram = torch.bmm(centred, centred.mT)
    square = gram.diagonal(dim1=1, dim2=2)
    distance = (square[:, :, None] + square[:, None, :] - 2.0 * gram).clamp_min_(0.0)
    weights = distance.div_(-sigma[:, None, None]).exp_()  # sigma A'(|w_i - w_j|^2)
    weights.mul_(attention[:, None, None] / models.shape[1])
    weights.diagonal(dim1=1, dim2=2).zero_()
    return weights


def cosine_weights(models: Tensor, scale: Tensor, self_weight: Tensor) -> Tensor:
    """HeurFedAMP's xi_ij [S, K, K] for j != i, 0 on the diagonal."""
    tiny = torch.finfo(models.dtype).tiny
    unit = models / torch.linalg.vector_norm(models, dim=2, keepdim=True).clamp_min(tiny)
    scores = torch.bmm(unit, unit.mT).mul_(scale[:, None, None])
    scores.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    if models.shape[1] == 1:
        return torch.zeros_like(scores)
    return torch.softmax(scores, 2).mul_(1.0 - self_weight[:, None, None])
