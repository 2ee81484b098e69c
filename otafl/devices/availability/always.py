"""All devices present all the time."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.devices.availability.base import Availability


class AlwaysAvailable(Availability):
    """Availability without departures."""

    leave: ClassVar[bool] = False

    class Settings(Availability.Settings):
        name: Literal["always"] = "always"

    def list_changes(self, trial: int, device: int) -> None:
        return None
