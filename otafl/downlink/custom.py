"""Take a downlink of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.downlink.base.Downlink` or from a downlink of this package. What it returns
has the right shapes, or there is a UserError; one number stands for all trials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import Arrival, Downlink
from otafl.user_code.own import OwnClass, refuse


class Checked(Downlink):
    """Checks what the user's downlink, the next class in line, says of a broadcast."""

    said: str

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        arrival = super().send(broadcast, cohort, round)  # type: ignore[safe-super]
        if not isinstance(arrival, Arrival):
            self._refuse(f"a {type(arrival).__name__}", "an otafl.downlink.base.Arrival")
        heard = arrival.heard
        if heard is not None and tuple(heard.shape) != (cohort.size,):
            self._refuse(f"heard of shape {list(heard.shape)}", f"[{cohort.size}], a row a device,")
        seconds = self._of_trials("seconds", arrival.seconds, cohort)
        return replace(arrival, seconds=seconds, bits=self._of_trials("bits", arrival.bits, cohort))

    def _of_trials(self, name: str, given: Any, cohort: Cohort) -> np.ndarray:
        value = np.asarray(given, float)
        if value.shape not in ((), (cohort.trials,)):
            self._refuse(f"{name} of shape {list(value.shape)}", f"[{cohort.trials}]")
        if not (np.isfinite(value) & (value >= 0)).all():
            self._refuse(f"{name} that are not numbers from 0 on", "finite ones")
        return np.broadcast_to(value, cohort.trials)

    def _refuse(self, fault: str, wanted: str) -> NoReturn:
        refuse("downlink", self.said, "send", fault, wanted)


class CustomDownlink(OwnClass):
    """The section names a downlink of the user's, which is checked in every round."""

    table: ClassVar = "downlink"
    contract: ClassVar = Downlink
    checks: ClassVar = Checked
