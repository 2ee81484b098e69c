"""Combiner along the sum of channels, so that devices need not know their phases (maximum ratio).

With f = sum_k h_k / |sum_k h_k|, f^H h_k is real and equal for all devices in the limit of many
antennas. Blind over-the-air computation uses this combiner.

References
----------
Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from otafl.receivers.base import Receiver, normalise_combiner


class Mrc(Receiver):
    """Maximum-ratio combining of the sum of channels."""

    turns_phases: ClassVar[bool] = True
    example: ClassVar = {"channel.antennas": 64, "power.name": "blind"}

    name: Literal["mrc"] = "mrc"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        r"""Compute the normalised sum of the channels, complex [S, Q, A].

        Notes
        -----
        .. math::

            f = \sum_k h_k / \left| \sum_k h_k \right|
        """
        return normalise_combiner((h * transmit_mask[:, None, :, None]).sum(2))
