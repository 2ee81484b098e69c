"""Take a server optimiser of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.server.base.ServerOptimiser` or from an optimiser of this package, and is its
settings: its fields are the section's keys. Blocks keep their shapes, or there is a UserError.
"""

from __future__ import annotations

from typing import ClassVar

from otafl.core.contracts import Blocks, Hyper
from otafl.server.base import ServerOptimiser
from otafl.user_code.own import OwnClass, refuse, shapes


class Checked(ServerOptimiser):
    """Checks what the user's optimiser, the next class in line, makes of the server."""

    said: ClassVar[str]

    def init(self, server: Blocks, hyper: Hyper) -> Blocks:
        memory = super().init(server, hyper)
        if isinstance(shapes(memory), str):
            refuse("server", self.said, "init", f"{shapes(memory)}", "a dict of tensors")
        return memory

    def step(self, old: Blocks, new: Blocks, memory: Blocks, hyper: Hyper) -> tuple[Blocks, Blocks]:
        given = super().step(old, new, memory, hyper)
        if not isinstance(given, tuple) or len(given) != 2:
            refuse("server", self.said, "step", f"a {type(given).__name__}", "(server, memory)")
        for what, before, after in (("server", old, given[0]), ("memory", memory, given[1])):
            if shapes(after) != shapes(before):
                wanted = f"{shapes(before)}, as before,"
                refuse("server", self.said, "step", f"the {what} {shapes(after)}", wanted)
        return given


class CustomServer(OwnClass):
    """The section names an optimiser of the user's, which is checked in every round."""

    table: ClassVar = "server"
    contract: ClassVar = ServerOptimiser
    checks: ClassVar = Checked
