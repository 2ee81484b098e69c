"""CPU frequency of the local work: each file is a rule that chooses it."""

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
    """Build the choice of CPU frequencies of a stack.

    Parameters
    ----------
    section : CpuFrequency.Settings
        Section `devices.cpu_frequency`, equal in all trials.
    hardware : Hardware, arrays [S, K]
        Hardware of the devices.
    budget : LinkBudget
        Link budget of the stack.
    uplink : OrthogonalUplink, optional
        Uplink as devices know it in advance; None if they cannot plan with it.

    Returns
    -------
    CpuFrequency
        The choice.
    """
    return registry.make_component(
        "cpu_frequency", section, FrequencySetup(hardware, budget, uplink)
    )
