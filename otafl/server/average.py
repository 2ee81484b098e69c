"""Server step of the method itself."""

from __future__ import annotations

from typing import Literal

from otafl.core.contracts import Hyper, Tensors
from otafl.server.base import ServerOptimiser


class Average(ServerOptimiser):
    """The method's own server step, without state.

    Examples
    --------
    `server: average`, the default of every scenario.
    """

    name: Literal["average"] = "average"

    def init(self, server: Tensors, hyper: Hyper) -> Tensors:
        return {}

    def step(
        self, old: Tensors, new: Tensors, memory: Tensors, hyper: Hyper
    ) -> tuple[Tensors, Tensors]:
        return new, memory
