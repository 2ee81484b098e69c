"""Let the broadcast arrive without error.

A number is 32 bits; bits and time are charged at `devices.downlink_rate_bps`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import WORD, Delivery, Downlink, count_copies


class IdealDownlink(Downlink):
    class Settings(Downlink.Settings):
        name: Literal["ideal"] = "ideal"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        if broadcast.coordinates_per_row is None:
            bits = WORD * broadcast.num_coordinates
            return Delivery(
                broadcast, bits / self.setup.rate_bps, count_copies(broadcast, cohort) * bits
            )
        # each device gets a part of its own, all at once; the largest takes longest
        bits_of, trial = (
            WORD * broadcast.coordinates_per_row.cpu().numpy(),
            cohort.host_trial_device[0],
        )
        longest = np.zeros(cohort.num_trials)
        np.maximum.at(longest, trial, bits_of)
        total = np.bincount(trial, bits_of, cohort.num_trials)
        return Delivery(broadcast, longest / self.setup.rate_bps, total)
