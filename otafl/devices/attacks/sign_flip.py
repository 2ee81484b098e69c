"""Send the update times -scale.

Of factors of a product each is flipped, so a product of two is multiplied by scale squared.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent", NeurIPS.
"""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked, scale_rows


class SignFlip(Attack):
    """A flipped update."""

    name: Literal["sign_flip"] = "sign_flip"

    def change_update(self, attacked: Attacked) -> Tensors:
        return {name: scale_rows(own, -attacked.scale) for name, own in attacked.own.items()}
