"""Let the broadcast arrive without error.

A number is 32 bits; bits and time are charged at `devices.downlink_rate_bps`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import WORD, Arrival, Downlink, copies


class IdealDownlink(Downlink):
    class Settings(Downlink.Settings):
        name: Literal["ideal"] = "ideal"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        if broadcast.coordinates_per_row is None:
            bits = WORD * broadcast.reals
            return Arrival(broadcast, bits / self.setup.rate_bps, copies(broadcast, cohort) * bits)
        # each device gets a part of its own, all at once; the largest takes longest
        bits_of, trial = (
            WORD * broadcast.coordinates_per_row.cpu().numpy(),
            cohort.host_trial_device[0],
        )
        longest = np.zeros(cohort.trials)
        np.maximum.at(longest, trial, bits_of)
        total = np.bincount(trial, bits_of, cohort.trials)
        return Arrival(broadcast, longest / self.setup.rate_bps, total)
