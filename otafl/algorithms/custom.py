"""Take a method of the user's own, a class that the scenario names `module:Class`.

It derives from `otafl.algorithms.base.Algorithm` or from a method of this package. The keys of the
section are the fields of its class `Settings`. What it gives to the engine has the right shapes, or
there is a UserError that says what has not; only shapes are looked at, which waits for no device.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, get_args

import numpy as np

from otafl.algorithms.base import Algorithm, Needs, Outcome
from otafl.core import registry
from otafl.core.contracts import (
    Blocks,
    Broadcast,
    Context,
    Group,
    Heard,
    LocalContext,
    LocalLoad,
    Payload,
    Received,
)
from otafl.user_code.own import OwnClass, refuse, shapes


def class_of(section: Any) -> type[Algorithm]:
    """Return the class of the method that a section names. Raises UserError if it cannot be had."""
    if isinstance(section, CustomAlgorithm):
        return section.kind
    kind: type[Algorithm] = registry.component("algorithm", section.name)
    return kind


def averages(kind: type[Algorithm]) -> bool:
    """Say whether a method's server block "model" moves by averaged increments: as the class says;
    a class of the user's that says nothing must have kept the server step of one that does."""
    for one in kind.__mro__:
        built_in = one.__module__.startswith("otafl.algorithms.")
        if not built_in and "averages" in vars(one):
            break
        if not built_in and "combine" in vars(one):
            return False
    return kind.averages


class Checked(Algorithm):
    """Checks what the user's method, the next class in line, gives."""

    said: str
    """The method, as the scenario names it."""

    def local(self, broadcast: Broadcast, devices: Blocks, context: LocalContext) -> Outcome:
        before = shapes(devices)
        given = super().local(broadcast, devices, context)  # type: ignore[safe-super]
        if not isinstance(given, tuple) or len(given) != 3:
            self._refuse("local", f"a {type(given).__name__}", "(devices, payload, loss)")
        state, payload, loss = given
        rows = context.cohort.size
        if not isinstance(payload, tuple) or not all(isinstance(one, Group) for one in payload):
            wanted = "a tuple of otafl.core.contracts.Group"
            self._refuse("local", f"the payload as a {type(payload).__name__}", wanted)
        counts = {rows, *(len(group.rows) for group in payload if group.rows is not None)}
        for name, block in [pair for group in payload for pair in group.blocks.items()]:
            if len(block) not in counts:
                got = f"the payload's block '{name}' of shape {list(block.shape)}"
                self._refuse("local", got, f"[{rows}, ...], a row a device,")
        if tuple(loss.shape) != (rows,):
            self._refuse("local", f"a loss of shape {list(loss.shape)}", f"[{rows}]")
        if set(state) != set(before):
            got = f"the devices' blocks {sorted(state)}"
            self._refuse("local", got, f"{sorted(before)}, as init made them,")
        self._same("local", state, before)
        return state, payload, loss

    def combine(self, server: Blocks, received: Received, context: Context) -> Blocks:
        before = shapes(server)
        state = super().combine(server, received, context)
        if not isinstance(state, dict) or set(state) != set(before):
            got = sorted(state) if isinstance(state, dict) else f"a {type(state).__name__}"
            self._refuse("combine", f"{got}", f"the server's blocks {sorted(before)}")
        self._same("combine", state, before)
        return state

    @property
    def settles(self) -> bool:
        given = type(self).__mro__[2:]  # the user's class and those that it derives from
        return next(one for one in given if "settle" in vars(one)) is not Algorithm

    def settle(self, devices: Blocks, sent: Payload, heard: Heard, context: Context) -> Blocks:
        before = shapes(devices)
        state = super().settle(devices, sent, heard, context)
        if not isinstance(state, dict) or set(state) != set(before):
            got = sorted(state) if isinstance(state, dict) else f"a {type(state).__name__}"
            self._refuse("settle", f"{got}", f"the devices' blocks {sorted(before)}")
        self._same("settle", state, before)
        return state

    def flops(self, load: LocalLoad) -> np.ndarray:
        """Return the method's, of which one number stands for all devices."""
        flops = np.asarray(super().flops(load), float)
        if flops.shape not in ((), load.samples.shape):
            got = f"an array of shape {list(flops.shape)}"
            self._refuse(
                "flops", got, f"one number, or {list(load.samples.shape)} as load.samples,"
            )
        return np.broadcast_to(flops, load.samples.shape)

    def _same(self, part: str, new: Blocks, before: Any) -> None:
        """Refuse new blocks of other shapes than before."""
        for name, block in new.items():
            if list(block.shape) != before[name]:
                got = f"the block '{name}' of shape {list(block.shape)}"
                self._refuse(part, got, str(before[name]))

    def _refuse(self, part: str, fault: str, wanted: str) -> NoReturn:
        refuse("algorithm", self.said, part, fault, wanted)


class CustomAlgorithm(OwnClass):
    """The section names a method of the user's, which is checked in every round."""

    table: ClassVar = "algorithm"
    noun: ClassVar = "method"
    contract: ClassVar = Algorithm
    checks: ClassVar = Checked

    @property
    def kind(self) -> type[Algorithm]:
        kind: type[Algorithm] = super().kind
        if kind.needs not in get_args(Needs):
            self.refuse(
                f"has needs = {kind.needs!r}; the attribute needs = 'mean' would do, or 'each' "
                "for a server that must tell devices apart"
            )
        return kind
