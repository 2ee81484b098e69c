"""Magnitude pruning: local SGD, then all but the largest weights of a device are set to zero.

Frankle, Dziugaite, Roy, Carbin 2020, "Linear Mode Connectivity and the Lottery Ticket Hypothesis";
Xue and Lau, FedRLR, compare with it as baseline 3. Every device prunes its own weights, so the mean
of K devices has up to K times the entries that one keeps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_baselines import MagnitudePruningConfig
from otafl.algorithms.whole_models import (
    density,
    global_view,
    payload_of,
    received_model,
    start,
    step_size,
    weights_of,
)
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.factorised.shrinkage import top
from otafl.models.base import Model, flatten, unflatten


class MagnitudePruning:
    """Server blocks: every parameter of the model, [S, *shape]; no device state."""

    def __init__(self, config: MagnitudePruningConfig, model: Model, devices: int) -> None:
        self.config = config
        self.model = model
        self.weights = weights_of(model)

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
        params = dict(broadcast.blocks)
        step = step_size(hyper, work.round)[cohort.trial]
        loss = torch.zeros_like(step)
        for index in range(work.steps):
            loss += self.model.sgd_(params, work.batch(index), step)
        params |= self._pruned({name: params[name] for name in self.weights})
        payload = payload_of(params, self.weights, self.config.bias_mode)
        return {}, payload, loss / work.steps

    def _pruned(self, weights: Blocks) -> Blocks:
        """The largest magnitudes of each layer, or of all layers side by side."""
        if self.config.scope == "global":
            shapes = {name: self.model.shapes[name] for name in weights}
            return unflatten(self._largest(flatten(weights)), shapes)
        return {name: self._largest(w.flatten(1)).view_as(w) for name, w in weights.items()}

    def _largest(self, rows: Tensor) -> Tensor:
        return top(rows, max(1, round(self.config.keep * rows.shape[1])))

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
