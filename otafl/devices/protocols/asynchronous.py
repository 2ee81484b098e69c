"""Transmission as soon as a device is ready and the uplink is free (asynchronous).

Devices that were ready first transmit first.

References
----------
Xie, Koyejo, Gupta 2019, "Asynchronous Federated Optimization".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.devices.protocols.base import Late, Protocol, Rules


class Asynchronous(Protocol):
    """Protocol without rounds."""

    has_deadline: ClassVar[bool] = False

    name: Literal["asynchronous"] = "asynchronous"
    together: int = Field(1, ge=1)
    """largest number of devices in a slot, among those that wait when the uplink is free"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(1, max_ready=self.together, late="next", broadcast_first=False)
