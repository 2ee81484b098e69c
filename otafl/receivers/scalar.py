"""First antenna of the server, without the others."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.receivers.base import Receiver, select_first_antenna


class Scalar(Receiver):
    """First antenna of the server."""

    name: Literal["scalar"] = "scalar"

    def combine(self, h: Tensor, transmit_mask: Tensor, budget: Tensor) -> Tensor:
        return select_first_antenna(h[:, :, 0])
