"""Shorten increments by a tenth of what the server has received of the device so far."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.parameters import increment_, received_copy, sgd_
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

    averages: ClassVar[bool] = True
    acknowledged_state: ClassVar[tuple[str, ...]] = (GIVEN,)

    class Settings(AveragedSettings):
        name: Literal["anchored"] = "anchored"

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        server, _ = super().init(streams, hyper)
        return server, {GIVEN: torch.zeros_like(server[MODEL])[:, None]}

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        params = received_copy(broadcast, self.model)
        loss = sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        payload = increment_(params, broadcast, self.model.shapes)
        payload[0].blocks[MODEL].sub_(devices[GIVEN], alpha=0.1)
        return devices, payload, loss

    def on_ack(
        self, devices: Tensors, sent: Payload, heard: DeliveredMasks, context: Context
    ) -> Tensors:
        return {GIVEN: devices[GIVEN] + torch.where(heard[0], sent[0].blocks[MODEL], 0.0)}
