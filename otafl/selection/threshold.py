"""Devices whose estimated SNR is above a threshold, uniformly chosen if they are too many.

Devices below the threshold do not train in the round. Of the others `devices.participants`, if it
is given, take part at most. Under Rayleigh fading of mean SNR s a device takes part with
probability exp(-threshold / s). A round without a device above the threshold changes nothing.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.core.contracts import ChannelState
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.selection.base import (
    Devices,
    NumWanted,
    Selection,
    SelectionSetup,
    draw_random_key,
    select_lowest,
)


class Threshold(Selection):
    """Selection of devices above an SNR threshold.

    Examples
    --------
    `docs/devices.md` has a scenario with `selection: threshold`.
    """

    is_narrowing: ClassVar[bool] = True
    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["threshold"] = "threshold"
        min_snr_db: Decibels = declare_stackable(10.0)
        """least estimated SNR at full power, budget times channel gain, in dB"""

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._least = db_to_linear(setup.hyper["min_snr_db"][:, None])

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        snr = self.setup.estimate_snr(state, round)
        candidates = available & (snr >= self._least).cpu().numpy()
        if np.min(wanted) >= available.shape[1]:
            return candidates
        return select_lowest(
            draw_random_key(self.setup.streams, round, available.shape[1]), candidates, wanted
        )[0]
