"""Let one server reach all devices."""

from __future__ import annotations

from typing import Literal

from otafl.topology.base import Topology


class Star(Topology):
    class Settings(Topology.Settings):
        name: Literal["star"] = "star"
