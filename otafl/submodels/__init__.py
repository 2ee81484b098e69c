"""Say which model size each device trains; each file is an assignment of levels."""

from __future__ import annotations

from otafl.core import registry
from otafl.core.contracts import Submodel, Workload
from otafl.core.settings import Settings
from otafl.devices.hardware import Hardware
from otafl.selection.base import SelectionSetup
from otafl.submodels.base import SubmodelAssignment, SubmodelSetup


def build(
    section: Settings,
    sizes: tuple[Submodel, ...],
    hardware: Hardware,
    load: Workload,
    setup: SelectionSetup,
) -> SubmodelAssignment | None:
    """Say who trains which model size; None for a method of one size.

    Parameters
    ----------
    section : `devices.capacity_levels`, alike in all trials.
    sizes : the method's levels, the largest first.
    hardware : [S, K].
    load : of the local work of all devices, [S, K].
    setup : what is known of the devices' channels.
    """
    if not sizes:
        return None
    return registry.make_component(
        "capacity_levels", section, SubmodelSetup(sizes, hardware, load, setup)
    )
