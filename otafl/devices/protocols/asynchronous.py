"""Let each device transmit when it is ready and the uplink is free: first come, first served.

Those who were ready first go before the others.

References
----------
Xie, Koyejo, Gupta 2019, "Asynchronous Federated Optimization".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.devices.protocols.base import Late, Protocol, Rules


class Asynchronous(Protocol):
    has_deadline: ClassVar[bool] = False

    name: Literal["asynchronous"] = "asynchronous"
    together: int = Field(1, ge=1)
    """most devices in a slot, of those who wait when the uplink is free"""

    def build_rules(self, deadline_s: float, late: Late) -> Rules:
        return Rules(1, max_ready=self.together, late="next", broadcast_first=False)
