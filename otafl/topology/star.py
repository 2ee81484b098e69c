"""One server that receives all devices."""

from __future__ import annotations

from typing import Literal

from otafl.topology.base import Topology


class Star(Topology):
    """Topology with one server."""

    class Settings(Topology.Settings):
        name: Literal["star"] = "star"
