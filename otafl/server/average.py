"""Take the method's own server step."""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Blocks, Hyper
from otafl.server.base import ServerOptimiser


class Average(ServerOptimiser):
    """Leave the step as it is; no memory."""

    name: Literal["average"] = "average"

    def init(self, server: Blocks, hyper: Hyper) -> Blocks:
        return {}

    def step(self, old: Blocks, new: Blocks, memory: Blocks, hyper: Hyper) -> tuple[Blocks, Blocks]:
        return new, memory
