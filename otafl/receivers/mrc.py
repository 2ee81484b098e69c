"""Combine by the sum of channels, so that devices need not know their phases (maximum ratio).

f = sum_k h_k / |sum_k h_k|: f^H h_k is real and equal for all in the limit of many antennas. It is
what blind over-the-air computation takes.

References
----------
Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from otafl.receivers.base import Receiver, normalise_combiner


class Mrc(Receiver):
    turns_phases: ClassVar[bool] = True
    example: ClassVar = {"channel.antennas": 64, "power.name": "blind"}

    name: Literal["mrc"] = "mrc"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        return normalise_combiner((h * transmit_mask[:, None, :, None]).sum(2))
