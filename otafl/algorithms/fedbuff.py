"""FedBuff.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
Asynchronous Aggregation", Algorithm 1: a device takes Q steps of SGD and sends the increment Delta
to the model that it received; the server adds it to a buffer, times s(d) = 1 / sqrt(1 + d) for d
steps of the server since then, and once M have come it steps along their mean and empties the
buffer:

    v <- beta v + (1 / M) sum s Delta,    x <- x + eta_g v        (beta = 0: the paper's step)

A slot may bring several devices, as an over-the-air sum does: the uplink's mean under s is turned
back into the sum. A slot that brings more than are missing makes one step, of the mean over all
that have come, so the step does not grow with them. How many came is known exactly from an uplink
that tells devices apart; else it is the share of the weight that arrived times the number in the
slot, rounded, which is exact if they are equally stale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.algorithms.config_asynchronous import FedBuffConfig
from otafl.algorithms.fedasync import arrived, per_trial
from otafl.algorithms.parameters import MODEL, copied, flat_view, increment, received_params
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, Payload, Received, View, Work
from otafl.core.rng import Streams
from otafl.models.base import Model, flatten


class FedBuff:
    """Server blocks "model", "buffer" and "velocity" [S, P]; "came" and "steps" [S] int64, updates
    in the buffer and steps taken. No device state."""

    def __init__(self, config: FedBuffConfig, model: Model, devices: int) -> None:
        self.model = model
        self._hyper: Hyper = {}

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        self._hyper = hyper
        model = flatten(start(self.model, streams))
        zeros = {name: torch.zeros_like(model) for name in ("buffer", "velocity")}
        none = torch.zeros(len(model), dtype=torch.int64, device=model.device)
        return {MODEL: model, **zeros, "came": none, "steps": none.clone()}, {}

    def version(self, server: Blocks) -> Tensor:
        """[S]: staleness counts the server's steps, not slots."""
        return server["steps"]

    def row_weights(self, cohort: Cohort) -> Tensor:
        """s [N]: all devices count alike, whatever their samples."""
        late = cohort.staleness.to(cohort.weight.dtype)
        return (1.0 + late).pow(-self._hyper["exponent"][cohort.trial])

    def broadcast(self, server: Blocks, cohort: Cohort) -> Broadcast:
        return Broadcast({MODEL: server[MODEL]})

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        old = received_params(broadcast, self.model)
        params = copied(old)
        rate = hyper["learning_rate"][cohort.trial]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            loss += self.model.sgd_(params, work.batch(step), rate)
        return {}, increment(params, old), loss / work.steps

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        weight = received.count[0]
        assert isinstance(weight, Tensor)
        total = weight * per_trial(cohort.weight, cohort)  # sum of s over those that arrived
        buffer = torch.addcmul(server["buffer"], received.mean[0][MODEL], total[:, None])
        came = server["came"] + _number(received, cohort, weight)
        full = came >= hyper["buffer"]
        steps = full[:, None]
        mean = buffer / came.clamp_min(1)[:, None]
        ahead = torch.addcmul(mean, hyper["momentum"][:, None], server["velocity"])
        velocity = torch.where(steps, ahead, server["velocity"])
        moved = torch.addcmul(server[MODEL], hyper["server_rate"][:, None], velocity)
        return {
            MODEL: torch.where(steps, moved, server[MODEL]),
            "buffer": torch.where(steps, 0.0, buffer),
            "velocity": velocity,
            "came": torch.where(full, 0, came),
            "steps": server["steps"] + full,
        }

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"global": flat_view(self.model, server[MODEL])}

    def flops(self, samples: int) -> float:
        return self.model.training_flops(samples)


def _number(received: Received, cohort: Cohort, weight: Tensor) -> Tensor:
    """[S] int64: devices whose updates arrived, of which weight [S] out of 1 is known."""
    if received.came is not None:
        return per_trial(arrived(received, cohort), cohort).round().long()
    return (weight * cohort.rows_of).round().long()
