"""Let the broadcast arrive without error.

A number is 32 bits; bits and time are charged at `devices.downlink_rate_bps`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import WORD, Arrival, Downlink, copies


class IdealDownlink(Downlink):
    class Settings(settings.Settings):
        name: Literal["ideal"] = "ideal"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        if broadcast.reals_of is not None:
            return self._parts(broadcast, broadcast.reals_of, cohort)
        bits = WORD * broadcast.reals
        return Arrival(broadcast, bits / self.setup.rate_bps, copies(broadcast, cohort) * bits)

    def _parts(self, broadcast: Broadcast, reals_of: Tensor, cohort: Cohort) -> Arrival:
        """Send each device its own part, all at once; the largest takes longest."""
        bits = WORD * reals_of.double()
        total = torch.zeros(cohort.trials, dtype=bits.dtype, device=bits.device)
        longest = total.scatter_reduce(0, cohort.trial, bits, "amax").cpu().numpy()
        total = total.index_add(0, cohort.trial, bits)
        return Arrival(broadcast, longest / self.setup.rate_bps, total.cpu().numpy())
