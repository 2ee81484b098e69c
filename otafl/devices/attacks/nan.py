"""Send numbers that are not finite, which a modem refuses by default."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked, scale_rows


class Nan(Attack):
    """NaN in place of the update."""

    sends_nonfinite: ClassVar[bool] = True

    name: Literal["nan"] = "nan"

    def change_update(self, attacked: Attacked) -> Tensors:
        nan = torch.full_like(attacked.scale, torch.nan)
        return {name: scale_rows(own, nan) for name, own in attacked.own.items()}
