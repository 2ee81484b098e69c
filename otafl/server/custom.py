"""Adapter for a user-defined server optimiser, a class that the scenario names `module:Class`.

It derives from `otafl.server.optimisers.ServerOptimiser` or from another class there, and is its
settings: its fields are the keys of the section. A UserError names tensors that change their
shapes.
"""

from __future__ import annotations

from typing import ClassVar

from otafl.server.optimisers import ServerOptimiser
from otafl.user_code.custom_part import CustomClass, check_blocks, check_parts, check_tensors


class CustomServer(CustomClass):
    """Section of a user-defined server optimiser, whose results are checked in every round."""

    table: ClassVar = "server"
    base_class: ClassVar = ServerOptimiser
    returns: ClassVar = {
        "init": check_tensors,
        "step": check_parts(
            "(server, memory)",
            check_blocks("old", "the server's"),
            check_blocks("memory", "the memory's"),
        ),
    }
