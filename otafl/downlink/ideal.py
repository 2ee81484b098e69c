"""Delivery of the broadcast without error.

A number has 32 bits. Bits and time are charged at `devices.downlink_rate_bps`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import WORD, Delivery, Downlink, count_copies


class IdealDownlink(Downlink):
    """Error-free downlink."""

    class Settings(Downlink.Settings):
        name: Literal["ideal"] = "ideal"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        """Send the broadcast at the given rate."""
        if broadcast.coordinates_per_row is None:
            bits = WORD * broadcast.num_sent
            return Delivery(
                broadcast, bits / self.setup.rate_bps, count_copies(broadcast, cohort) * bits
            )
        # devices get different parts at the same time; the largest takes longest
        bits_of, trial = (
            WORD * broadcast.coordinates_per_row.cpu().numpy(),
            cohort.host_trial_device[0],
        )
        longest = np.zeros(cohort.num_trials)
        np.maximum.at(longest, trial, bits_of)
        total = np.bincount(trial, bits_of, cohort.num_trials)
        return Delivery(broadcast, longest / self.setup.rate_bps, total)
