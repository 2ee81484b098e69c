"""Send normal noise of scale times the norm of the update.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent", NeurIPS.
"""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked, compute_norms, scale_rows


class Gaussian(Attack):
    """Noise in place of the update."""

    name: Literal["gaussian"] = "gaussian"

    def change_update(self, attacked: Attacked) -> Tensors:
        own = attacked.own
        noise = {
            name: attacked.draw_normal(name, tuple(block.shape[1:])) for name, block in own.items()
        }
        if (mask := attacked.group.full_mask) is not None:  # unknown coordinates are not sent
            own = {name: block * mask[name][attacked.rows] for name, block in own.items()}
            noise = {name: block * mask[name][attacked.rows] for name, block in noise.items()}
        factor = attacked.scale * compute_norms(own) / compute_norms(noise).clamp_min(1e-30)
        return {name: scale_rows(block, factor) for name, block in noise.items()}
