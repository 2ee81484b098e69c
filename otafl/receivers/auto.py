"""Take the receiver that the power policy is made for; with one antenna none is needed.

With one antenna only the sum of channels, which blind devices need, does anything.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.core import registry
from otafl.power.base import PowerPolicy
from otafl.receivers.base import Receiver
from otafl.receivers.scalar import Scalar


class Auto(Receiver):
    name: Literal["auto"] = "auto"

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        kind: type[Receiver] = registry.load_component("receiver", policy.receiver)
        if antennas == 1 and not kind.turns_phases:
            kind = Scalar
        return kind(scale=self.scale)

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        raise NotImplementedError("auto stands for another receiver, which match_policy returns")
