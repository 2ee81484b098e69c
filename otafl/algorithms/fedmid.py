"""FedMiD with a nuclear norm: low-rank weights by proximal SGD.

Yuan, Zaheer, Reddi 2021, "Federated Composite Optimization", Algorithm 2 with the Euclidean mirror
map and server rate 1. A device's step is W = svt(W - eta G, eta lambda), the prox of eta lambda
|W|_*, which soft-thresholds the singular values; the server takes svt(mean, J eta lambda) after J
local steps. Xue and Lau, FedRLR, compare with it as baseline 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.algorithms.config_baselines import FedMiDConfig
from otafl.algorithms.whole_models import (
    as_matrix,
    global_view,
    payload_of,
    received_model,
    start,
    step_size,
    weights_of,
)
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import numerical_rank, svt
from otafl.models.base import Model


class FedMiD:
    """Server blocks: every parameter of the model, [S, *shape]; no device state."""

    def __init__(self, config: FedMiDConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.weights = weights_of(model)
        self._steps = 1

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return start(self.model, streams), {}

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
        self._steps = work.steps
        params = dict(broadcast.blocks)
        eta = step_size(hyper, work.round)
        threshold = (eta * hyper["nuclear_weight"])[cohort.trial]
        step = eta[cohort.trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            loss += self.model.sgd_(params, work.batch(index), step)
            self._shrink_(params, threshold)
        payload = payload_of(params, self.weights, self.config.bias_mode)
        return {}, payload, loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        model = received_model(received, self.model)
        if self.config.server_prox:
            eta = step_size(hyper, round)
            self._shrink_(model, self._steps * eta * hyper["nuclear_weight"])
        return model

    def _shrink_(self, params: Blocks, threshold: Tensor) -> None:
        """Every weight [n, *shape] by its svt, threshold [n]."""
        for name in self.weights:
            weight = params[name]
            params[name] = svt(as_matrix(weight), threshold).view_as(weight)

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return global_view(self.model, server)

    def measures(self, server: Blocks, devices: Blocks) -> dict[str, Tensor]:
        """ "weight_rank" [S]: mean over the weights of how many singular values are above 1e-3 of
        the largest."""
        ranks = [numerical_rank(as_matrix(server[name])) for name in self.weights]
        return {"weight_rank": torch.stack(ranks).mean(0)}

    def flops(self, samples: int) -> float:
        """Training, and one singular value decomposition of each weight: the local steps that
        these samples are spread over are not known here."""
        total = self.model.training_flops(samples)
        for name in self.weights:
            rows, *rest = self.model.shapes[name]
            columns = math.prod(rest)
            short, long = min(rows, columns), max(rows, columns)
            total += 4.0 * long * short**2 + 9.0 * short**3
        return total
