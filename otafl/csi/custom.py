"""Take channel knowledge of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.csi.base.Csi` or from a class of this package. Its estimates have the shape
of the channel and finite numbers, or there is a UserError.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from otafl.csi.base import Csi
from otafl.user_code.own import OwnClass, refuse


class Checked(Csi):
    """Checks what the user's class, the next in line, estimates."""

    said: str

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        h_hat = super().estimate(h, gain, round)  # type: ignore[safe-super]
        if not isinstance(h_hat, Tensor) or h_hat.shape != h.shape:
            shape = list(h_hat.shape) if isinstance(h_hat, Tensor) else type(h_hat).__name__
            refuse("csi", self.said, "estimate", f"{shape}", f"{list(h.shape)}, as h,")
        if not bool(torch.isfinite(h_hat.abs()).all()):
            refuse("csi", self.said, "estimate", "numbers that are not finite", "finite ones")
        return h_hat.to(h.dtype)


class CustomCsi(OwnClass):
    """The section names an estimator of the user's, which is checked in every round."""

    table: ClassVar = "csi"
    contract: ClassVar = Csi
    checks: ClassVar = Checked
