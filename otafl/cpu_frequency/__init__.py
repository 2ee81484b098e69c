"""Choose how fast devices clock in their local work; each file is a way to choose."""

from __future__ import annotations

from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.settings import Settings
from otafl.cpu_frequency.base import CpuFrequency, FrequencySetup
from otafl.devices.hardware import Hardware
from otafl.uplink.base import OrthogonalUplink


def build(
    section: Settings, hardware: Hardware, budget: LinkBudget, uplink: OrthogonalUplink | None
) -> CpuFrequency:
    """Make the choice of clock frequencies of a stack.

    Parameters
    ----------
    section : `devices.cpu_frequency`, alike in all trials.
    hardware : [S, K].
    uplink : what devices know of it beforehand, None where they cannot plan with it.
    """
    return registry.make_component(
        "cpu_frequency", section, FrequencySetup(hardware, budget, uplink)
    )
