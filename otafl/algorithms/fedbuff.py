"""Gather increments in a buffer, weighed by their staleness, and step once it is full (FedBuff).

For asynchronous uplinks. A device takes Q steps of SGD and sends the increment Delta to the model
that it received; the server adds it to a buffer, times s(d) = 1 / sqrt(1 + d) for d steps of the
server since then, and once M have come it steps along their mean and empties the buffer:

    v <- beta v + (1 / M) sum s Delta,    x <- x + eta_g v        (beta = 0: the paper's step)

A slot may bring several devices, as an over-the-air sum does: the uplink's mean under s is turned
back into the sum. A slot that brings more than are missing makes one step, of the mean over all
that have come, so the step does not grow with them. How many came is known exactly from an uplink
that tells devices apart; else it is the share of the weight that arrived times the number in the
slot, rounded, which is exact if they are equally stale.

References
----------
Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
    Asynchronous Aggregation", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.deliveries import get_delivered_indicator, sum_per_trial
from otafl.algorithms.parameters import build_increment_, copy_received_params, run_sgd_
from otafl.core import settings
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Cohort,
    Context,
    Hyper,
    LocalContext,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable


class FedBuff(Algorithm):
    """Keeps server blocks "model", "buffer" and "velocity" [S, P]; "came" and "steps" [S] int64,
    updates in the buffer and steps taken; no device state."""

    broadcast_names: ClassVar[tuple[str, ...]] = (MODEL,)

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"devices.protocol.name": "quorum"}
        small: ClassVar[Mapping[str, Any]] = {"buffer": 2}

        name: Literal["fedbuff"] = "fedbuff"
        learning_rate: float = declare_stackable(0.1, gt=0)
        """SGD step of the devices, eta_l"""
        server_rate: float = declare_stackable(1.0, gt=0)
        """eta_g, factor on the mean of the buffer"""
        buffer: int = declare_stackable(10, ge=1)
        """M, updates after which the server steps (the paper's K)"""
        exponent: float = declare_stackable(0.5, ge=0)
        """an update of staleness d counts (1 + d)^-exponent; 0.5 is the paper's, 0 counts all
        alike"""
        momentum: float = declare_stackable(0.0, ge=0, lt=1)
        """share of the server's last step that it takes again"""

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, devices = super().init(streams, hyper)
        model = server[MODEL]
        zeros = {name: torch.zeros_like(model) for name in ("buffer", "velocity")}
        none = torch.zeros(len(model), dtype=torch.int64, device=model.device)
        return server | zeros | {"came": none, "steps": none.clone()}, devices

    def get_version(self, server: Tensors) -> Tensor:
        """Return the server's steps so far, [S]: staleness counts these, not slots."""
        return server["steps"]

    def compute_weights(self, context: Context) -> Tensor:
        """Return s [N]: all devices count alike, whatever their samples."""
        late = context.cohort.staleness.to(context.cohort.weight.dtype)
        return (1.0 + late).pow(-context.gather_hyper("exponent"))

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = copy_received_params(broadcast, self.model)
        loss = run_sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        return {}, build_increment_(params, broadcast, self.model.shapes), loss

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        cohort, hyper = context.cohort, context.hyper
        weight = received.delivered_weight(0, MODEL)
        total = weight * sum_per_trial(cohort.weight, cohort)[:, None]  # sum of s of what arrived
        buffer = torch.addcmul(server["buffer"], received.mean[0][MODEL], total)
        num_delivered = server["came"] + _count_delivered(received, cohort, weight.amax(1))
        full = num_delivered >= hyper["buffer"]
        steps = full[:, None]
        mean = buffer / num_delivered.clamp_min(1)[:, None]
        ahead = torch.addcmul(mean, hyper["momentum"][:, None], server["velocity"])
        velocity = torch.where(steps, ahead, server["velocity"])
        moved = torch.addcmul(server[MODEL], hyper["server_rate"][:, None], velocity)
        return {
            MODEL: torch.where(steps, moved, server[MODEL]),
            "buffer": torch.where(steps, 0.0, buffer),
            "velocity": velocity,
            "came": torch.where(full, 0, num_delivered),
            "steps": server["steps"] + full,
        }


def _count_delivered(received: Received, cohort: Cohort, weight: Tensor) -> Tensor:
    """Count the devices whose updates arrived, [S] int64, of which weight [S] out of 1 is known."""
    if received.delivered_mask is not None:
        return sum_per_trial(get_delivered_indicator(received, cohort), cohort).round().long()
    return (weight * cohort.rows_per_trial).round().long()
