"""Adapter for a user-defined selection, a class that the scenario names `module:Class`.

It derives from `otafl.selection.base.Selection` or from a class of this package. A UserError names
chosen devices that are not available, or are more than wanted.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from otafl.selection.base import Devices, Selection
from otafl.user_code.custom_part import Call, CustomClass


def check_participants(call: Call, chosen: Any) -> Devices:
    """Check that the chosen devices are available, and not more than wanted.

    More are possible if the transmitters are chosen after local work.
    """
    free, wanted = call.given["available"], call.given["wanted"]
    array, mask = isinstance(chosen, np.ndarray), f"{list(free.shape)} bool"
    got = f"{list(chosen.shape)} {chosen.dtype}" if array else type(chosen).__name__
    like = f"a NumPy array {list(free.shape)} of bool, True for participants"
    call.require(got == mask, got, like)
    if (chosen & ~free).any():
        trial, device = (int(place[0]) for place in np.nonzero(chosen & ~free))
        got = f"device {device} of trial {trial}, which is not available"
        call.require(False, got, "available devices")
    excess = chosen.sum(1) - wanted
    if type(call.part).select_transmitters is Selection.select_transmitters and (excess > 0).any():
        trial = int(excess.argmax())
        count = chosen[trial].sum()
        call.require(False, f"{count} devices of trial {trial}", f"at most {count - excess[trial]}")
    return chosen


class CustomSelection(CustomClass):
    """Section of a user-defined selection, whose choice is checked in every round."""

    table: ClassVar = "selection"
    base_class: ClassVar = Selection
    returns: ClassVar = {"select_devices": check_participants}
