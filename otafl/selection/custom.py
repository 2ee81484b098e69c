"""Take a selection of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.selection.base.Selection` or from a class of this package. It chooses free
devices, no more than are wanted, or there is a UserError.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from otafl.selection.base import Devices, Selection
from otafl.user_code.custom_part import CustomClass
from otafl.user_code.returned import Call


def check_participants(call: Call, chosen: Any) -> Devices:
    """Require free devices, and no more than are wanted unless the choice is made after all have
    trained."""
    free, wanted = call.given["available"], call.given["wanted"]
    array, mask = isinstance(chosen, np.ndarray), f"{list(free.shape)} bool"
    got = f"{list(chosen.shape)} {chosen.dtype}" if array else type(chosen).__name__
    like = f"a NumPy array {list(free.shape)} of bool, True for participants"
    call.require(got == mask, got, like)
    if (chosen & ~free).any():
        trial, device = (int(place[0]) for place in np.nonzero(chosen & ~free))
        call.refuse(f"device {device} of trial {trial}, which is not free", "free devices")
    excess = chosen.sum(1) - wanted
    if call.kind.select_transmitters is Selection.select_transmitters and (excess > 0).any():
        trial = int(excess.argmax())
        count = chosen[trial].sum()
        call.refuse(f"{count} devices of trial {trial}", f"{count - excess[trial]} at most")
    return chosen


class CustomSelection(CustomClass):
    """The section names a selection of the user's, which is checked in every round."""

    table: ClassVar = "selection"
    base_class: ClassVar = Selection
    returns: ClassVar = {"select_devices": check_participants}
