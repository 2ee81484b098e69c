"""Send the update times scale."""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked, scale_rows


class Scale(Attack):
    """A scaled update."""

    name: Literal["scale"] = "scale"

    def change_update(self, attacked: Attacked) -> Tensors:
        return {name: scale_rows(own, attacked.scale) for name, own in attacked.own.items()}
