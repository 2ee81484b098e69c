"""Independent selection of each device with the same probability (Poisson sampling).

The number of participants varies, and a round may have none. `devices.participants`, if it is
given, is the largest number. This sampling amplifies differential privacy (section `privacy`).

References
----------
Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang 2016, "Deep Learning with Differential
    Privacy".
McMahan, Ramage, Talwar, Zhang 2018, "Learning Differentially Private Recurrent Language Models".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import ChannelState
from otafl.core.settings import declare_stackable
from otafl.selection.base import (
    Devices,
    NumWanted,
    Selection,
    SelectionSetup,
    draw_random_key,
    select_lowest,
    to_host,
)


class Poisson(Selection):
    """Poisson sampling of participants.

    Examples
    --------
    `docs/privacy.md` has a scenario with `selection: poisson`.
    """

    is_narrowing: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["poisson"] = "poisson"
        probability: float = declare_stackable(0.5, gt=0, le=1)
        """probability with which a device takes part in a round"""

        @property
        def sampling_probability(self) -> float:
            return self.probability

    def __init__(self, settings: Settings, setup: SelectionSetup) -> None:
        super().__init__(settings, setup)
        self._probability = to_host(setup.hyper["probability"])[:, None]

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        key = draw_random_key(self.setup.streams, round, available.shape[1])
        drawn = available & (key < self._probability)
        return select_lowest(key, drawn, wanted)[0]
