"""Assignments of capacity levels: which submodel each device trains."""

from __future__ import annotations

from otafl.core import registry
from otafl.core.contracts import Submodel, Workload
from otafl.core.settings import Settings
from otafl.devices.hardware import Hardware
from otafl.selection.base import SelectionSetup
from otafl.submodels.assignments import SubmodelAssignment, SubmodelSetup


def build(
    section: Settings,
    sizes: tuple[Submodel, ...],
    hardware: Hardware,
    load: Workload,
    setup: SelectionSetup,
) -> SubmodelAssignment | None:
    """Make the assignment of a stack; None for a method of one model size.

    Parameters
    ----------
    section : Settings
        Section `devices.capacity_levels`, the same in all trials.
    sizes : tuple of Submodel
        Submodels of the method, from the largest.
    hardware : Hardware [S, K]
        Speed and memory of the devices.
    load : Workload [S, K]
        Local work of all devices.
    setup : SelectionSetup
        Knowledge of the devices' channels.

    Returns
    -------
    SubmodelAssignment, or None
        The assignment.

    Raises
    ------
    UserError
        If a device cannot have any of the levels.
    """
    if not sizes:
        return None
    return registry.make_component(
        "capacity_levels", section, SubmodelSetup(sizes, hardware, load, setup)
    )
