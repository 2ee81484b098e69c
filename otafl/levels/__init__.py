"""Say which model size each device trains; each file is an assignment of levels."""

from __future__ import annotations

from typing import Any

from otafl.core import registry
from otafl.core.contracts import Level
from otafl.core.settings import Settings
from otafl.devices.hardware import Hardware
from otafl.levels.base import Levels, LevelSetup
from otafl.selection.base import SelectionSetup


def build(
    section: Settings,
    sizes: tuple[Level, ...],
    hardware: Hardware,
    training: Any,
    setup: SelectionSetup,
) -> Levels | None:
    """Say who trains which model size; None for a method of one size.

    Parameters
    ----------
    section : `devices.levels`, alike in all trials.
    sizes : the method's levels, the largest first.
    hardware : [S, K].
    training : the section `training`.
    setup : what is known of the devices' channels.
    """
    if not sizes:
        return None
    batch, steps = training.batch_size, training.local_steps
    given = LevelSetup(sizes, hardware, batch * steps, batch, setup)
    return registry.make("levels", section, given)
