"""Train a model on each device alone and send nothing: what communication must beat.

SGD on each device's own samples, the control of every personalised method. Nothing is broadcast or
sent, so it takes no channel use and there is no global model; the personal models are all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from otafl.algorithms.base import Algorithm, personal_rate
from otafl.algorithms.parameters import MODEL, device_view, named, own, sgd_, shared_start
from otafl.core import settings
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Context,
    Hyper,
    LocalContext,
    Payload,
    Received,
    View,
)
from otafl.core.rng import Streams


class LocalOnly(Algorithm):
    """Keeps nothing at the server, and device blocks "personal.<name>", in each trial the same at
    first."""

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"data.own_test": True}

        name: Literal["local_only"] = "local_only"
        personal_learning_rate: float = personal_rate()

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Blocks, Blocks]:
        server, _ = super().init(streams, hyper)
        return {}, shared_start("personal", server[MODEL], self.model)

    def local(
        self, broadcast: Broadcast, devices: Blocks, context: LocalContext
    ) -> tuple[Blocks, Payload, Tensor]:
        params = own(devices, "personal")
        loss = sgd_(self.model, params, context.of_rows("personal_learning_rate"), context)
        return named("personal", params), (), loss

    def combine(self, server: Blocks, received: Received, context: Context) -> Blocks:
        return server

    def views(self, server: Blocks, devices: Blocks) -> dict[str, View]:
        return {"personal": device_view(self.model, devices, "personal")}
