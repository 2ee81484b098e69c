"""Take a selection of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.selection.base.Selection` or from a class of this package. It chooses free
devices, no more than are wanted, or there is a UserError.
"""

from __future__ import annotations

from typing import ClassVar, NoReturn

import numpy as np

from otafl.core.contracts import ChannelState
from otafl.selection.base import Devices, Selection, Wanted
from otafl.user_code.own import OwnClass, refuse


class Checked(Selection):
    """Checks whom the user's class, the next in line, chooses."""

    said: str

    def choose(self, free: Devices, wanted: Wanted, round: int, state: ChannelState) -> Devices:
        chosen = super().choose(free.copy(), wanted, round, state)  # type: ignore[safe-super]
        if not isinstance(chosen, np.ndarray) or (chosen.shape, chosen.dtype) != (free.shape, bool):
            got = type(chosen).__name__
            if isinstance(chosen, np.ndarray):
                got = f"{list(chosen.shape)} {chosen.dtype}"
            self._refuse(got, f"a NumPy array {list(free.shape)} of bool, True for who takes part,")
        if (chosen & ~free).any():
            trial, device = (int(place[0]) for place in np.nonzero(chosen & ~free))
            self._refuse(f"device {device} of trial {trial}, which is not free", "free devices")
        most = np.broadcast_to(wanted, len(free))
        # all train then, and the choice is made afterwards
        later = type(self).senders is not Selection.senders
        if not later and (chosen.sum(1) > most).any():
            trial = int((chosen.sum(1) - most).argmax())
            self._refuse(
                f"{chosen[trial].sum()} devices of trial {trial}", f"{most[trial]} at most"
            )
        return chosen

    def _refuse(self, fault: str, wanted: str) -> NoReturn:
        refuse("devices.selection", self.said, "choose", fault, wanted)


class CustomSelection(OwnClass):
    """The section names a selection of the user's, which is checked in every round."""

    table: ClassVar = "selection"
    contract: ClassVar = Selection
    checks: ClassVar = Checked
