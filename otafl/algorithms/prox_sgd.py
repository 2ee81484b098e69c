"""Proximal SGD with an l1 norm: sparse weights by soft thresholding.

A step is W = soft(W - eta G, eta lambda). With `momentum` it is ProxSGD (Yang, Yuan, Chatzinotas,
Ottersten 2020, "ProxSGD: Training Structured Neural Networks under Regularization and Constraints",
Algorithm 1, with quadratic gain 1/eta and a full step towards its minimiser): v = (1 - rho) v + rho
G, W = soft(W - eta v, eta lambda), where each device keeps its v. Xue and Lau, FedRLR, compare with
it as baseline 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_baselines import ProxSgdConfig
from otafl.algorithms.whole_models import (
    density,
    global_view,
    payload_of,
    received_model,
    start,
    step_size,
    weights_of,
)
from otafl.core.contracts import (
    Batch,
    Blocks,
    Broadcast,
    Cohort,
    Hyper,
    Payload,
    Received,
    View,
    Work,
)
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import soft
from otafl.models.base import Model


class ProxSgd:
    """Server blocks: every parameter of the model, [S, *shape]. Device blocks: with momentum, v of
    every parameter, [S, K, *shape], zero at first."""

    def __init__(self, config: ProxSgdConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.weights = weights_of(model)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        server = start(self.model, streams)
        if not self.config.momentum:
            return server, {}
        return server, {name: torch.zeros_like(block)[:, None] for name, block in server.items()}

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast(server)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        params = dict(broadcast.blocks)
        eta = step_size(hyper, work.round)
        threshold = (eta * hyper["l1_weight"])[cohort.trial]
        step = eta[cohort.trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            batch = work.batch(index)
            if self.config.momentum:
                rho = hyper["rho"][cohort.trial]
                step_loss, devices = self._momentum_step_(params, devices, batch, step, rho)
                loss += step_loss
            else:
                loss += self.model.sgd_(params, batch, step)
            for name in self.weights:
                weight = params[name]
                params[name] = soft(weight, threshold.view(-1, *[1] * (weight.dim() - 1)))
        payload = payload_of(params, self.weights, self.config.bias_mode)
        return devices, payload, loss / work.steps

    def _momentum_step_(
        self, params: Blocks, along: Blocks, batch: Batch, step: Tensor, rho: Tensor
    ) -> tuple[Tensor, Blocks]:
        """Params moved in place by -step v [n]; loss [n] before, and the new v."""
        loss, grads = self.model.gradients(params, batch)
        moved = {}
        for name, grad in grads.items():
            column = (-1, *[1] * (grad.dim() - 1))
            v = moved[name] = torch.lerp(along[name], grad, rho.view(column))
            params[name].addcmul_(v, step.view(column), value=-1.0)
        return loss, moved

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        return received_model(received, self.model)

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return global_view(self.model, server)

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        return density(server, self.weights)

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)
