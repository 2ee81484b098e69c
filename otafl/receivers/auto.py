"""Receiver for which the power policy is designed; with one antenna, none is needed.

With one antenna only the sum of channels has an effect, which blind devices need.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.core import registry
from otafl.power.base import PowerPolicy
from otafl.receivers.base import Receiver
from otafl.receivers.scalar import Scalar


class Auto(Receiver):
    """Choice of the receiver by the power policy."""

    name: Literal["auto"] = "auto"

    def match_policy(self, policy: PowerPolicy, antennas: int) -> Receiver:
        kind: type[Receiver] = registry.load_component("receiver", policy.receiver)
        if antennas == 1 and not kind.turns_phases:
            kind = Scalar
        return kind(scale=self.scale)

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        raise NotImplementedError("auto has no combiner; call that of match_policy's receiver")
