"""Send the update of one honest device, the first of the round, which then counts several times.

The attackers know only this update. No rule can tell the copies from honest updates, and with
unequal data they bias the aggregate towards one device's.

References
----------
Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing",
    ICLR, section 3.2.
"""

from __future__ import annotations

from typing import Literal

import torch

from otafl.core.contracts import Tensors
from otafl.devices.attacks.base import Attack, Attacked


class Mimic(Attack):
    """A copy of an honest update."""

    name: Literal["mimic"] = "mimic"

    def change_update(self, attacked: Attacked) -> Tensors:
        number, last = torch.arange(len(attacked.trial), device=attacked.trial.device), 2**62
        honest = number.where(attacked.honest_mask, last)
        first = torch.full((attacked.num_trials,), last, device=number.device)
        first.scatter_reduce_(0, attacked.trial, honest, "amin")
        copied = first[attacked.trial[attacked.rows]].clamp_max(len(number) - 1)
        blocks = attacked.group.masked_tensors
        return attacked.replace_own({name: block[copied] for name, block in blocks.items()})
