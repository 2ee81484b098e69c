"""Devices with the largest estimated channel gains (opportunistic scheduling).

The gain includes path loss. Of K devices with independent Rayleigh fading and one mean gain, the
best has H_K = 1 + 1/2 + ... + 1/K times the mean.

References
----------
Knopp, Humblet 1995, "Information Capacity and Power Control in Single-Cell Multiuser
    Communications".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import ChannelState
from otafl.selection.base import Devices, NumWanted, Selection, select_lowest, to_host


class BestChannel(Selection):
    """Selection of the best channels.

    Examples
    --------
    `studies/analog_vs_digital/analog_vs_digital.yaml` uses it.
    """

    uses_sounding: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["best_channel"] = "best_channel"

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return select_lowest(-to_host(self.setup.estimate_gains(state, round)), available, wanted)[
            0
        ]
