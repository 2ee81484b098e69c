"""Settings of when an uplink slot opens, and who is in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings, stackable

Late = Literal["drop", "next"]
"""What becomes of a device that is not ready when the uplink slot opens: its update is abandoned,
or it goes on and is admitted to the next slot at which it is ready."""


class RoundsConfig(Settings):
    """Rounds: the server broadcasts, and the slot opens when all who take part are ready, or at
    devices.deadline_s after the start; devices.late says what becomes of the others."""

    name: Literal["rounds"] = "rounds"


class PeriodicConfig(Settings):
    """A slot every so many seconds; those who are ready transmit together, the others go on."""

    name: Literal["periodic"] = "periodic"
    period_s: float = stackable(
        1.0,
        gt=0,
        description="seconds between slots; one that the last transmission covers is left out",
    )


class QuorumConfig(Settings):
    """Semi-asynchronous: a slot as soon as so many devices are ready (or all that are at work, or
    at devices.deadline_s after the last slot); the others go on."""

    name: Literal["quorum"] = "quorum"
    ready: int = stackable(2, ge=1, description="devices that must be ready, M")


class AsynchronousConfig(Settings):
    """Every device for itself: it transmits when it is ready and the uplink is free, those who
    were ready first before the others."""

    name: Literal["asynchronous"] = "asynchronous"
    together: int = Field(
        1, ge=1, description="most devices in a slot, of those who wait when the uplink is free"
    )
