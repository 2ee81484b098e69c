"""Send -scale times the mean of the honest updates.

The attackers know the updates of the honest devices of the round. The inner product of the
aggregate with the honest mean becomes negative if they are strong enough.

References
----------
Xie, Koyejo, Gupta 2020, "Fall of Empires: Breaking Byzantine-Tolerant SGD by Inner Product
    Manipulation", UAI.
"""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked, scale_rows


class InnerProduct(Attack):
    """The honest mean, reversed."""

    name: Literal["inner_product"] = "inner_product"

    def change_update(self, attacked: Attacked) -> Tensors:
        trial = attacked.trial[attacked.rows]
        sent = {
            name: scale_rows(attacked.compute_honest_mean(block)[trial], -attacked.scale)
            for name, block in attacked.group.masked_tensors.items()
        }
        return attacked.replace_own(sent)
