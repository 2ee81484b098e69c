"""Shorten increments by a tenth of what the server has received of the device so far."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.parameters import build_increment, copy_received_params, run_sgd_
from otafl.core.contracts import (
    MODEL,
    Broadcast,
    Context,
    DeliveredMasks,
    Hyper,
    LocalContext,
    Payload,
    Tensors,
)
from otafl.core.rng import Streams

GIVEN = "given"


class Anchored(Algorithm):
    """Keeps server block "model" [S, P], and device block "given" [S, K, P]: the sum of the
    device's updates that the server has received."""

    averages_increments: ClassVar[bool] = True
    acknowledged_state: ClassVar[tuple[str, ...]] = (GIVEN,)

    class Settings(AveragedSettings):
        name: Literal["anchored"] = "anchored"

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, _ = super().init(streams, hyper)
        return server, {GIVEN: torch.zeros_like(server[MODEL])[:, None]}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = copy_received_params(broadcast, self.model)
        loss = run_sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        payload = build_increment(params, broadcast, self.model.shapes)
        payload[0].tensors[MODEL].sub_(devices[GIVEN], alpha=0.1)
        return devices, payload, loss

    def on_ack(
        self, devices: Tensors, sent: Payload, delivered_masks: DeliveredMasks, context: Context
    ) -> Tensors:
        return {
            GIVEN: devices[GIVEN] + torch.where(delivered_masks[0], sent[0].tensors[MODEL], 0.0)
        }
