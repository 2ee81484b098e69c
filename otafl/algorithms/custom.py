"""Makes a method of the user's own (see `config_own`), and checks the shapes of what it gives."""

from __future__ import annotations

from typing import Any, NoReturn

from torch import Tensor

from otafl.algorithms.config_own import CustomAlgorithmConfig, refuse_unfinished
from otafl.core.contracts import (
    Algorithm,
    Blocks,
    Broadcast,
    Cohort,
    Group,
    Hyper,
    Payload,
    Received,
    Work,
)
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model


def make(config: CustomAlgorithmConfig, model: Model, devices: int) -> CustomAlgorithm:
    """The method, checked in every round. UserError if it is none; its own errors pass through."""
    method = config.method.make(config.settings, model, devices, **config.of_method)
    refuse_unfinished(method, config.name)
    return CustomAlgorithm(method, config.name)


class CustomAlgorithm:
    """The user's method; what it gives to the engine has the right shapes, or there is a UserError
    that says what has not. Only shapes are looked at, which waits for no device."""

    def __init__(self, method: Algorithm, name: str) -> None:
        self._method, self._name = method, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(self._method, attribute)

    def local(
        self,
        broadcast: Broadcast,
        devices: Blocks,
        cohort: Cohort,
        work: Work,
        hyper: Hyper,
        streams: Streams,
    ) -> tuple[Blocks, Payload, Tensor]:
        given = self._method.local(broadcast, devices, cohort, work, hyper, streams)
        if not isinstance(given, tuple) or len(given) != 3:
            self._refuse("local", f"returned a {type(given).__name__}", "(devices, payload, loss)")
        state, payload, loss = given
        rows = cohort.size
        if not isinstance(payload, tuple) or not all(isinstance(one, Group) for one in payload):
            wanted = "a tuple of otafl.core.contracts.Group"
            self._refuse("local", f"returned the payload as a {type(payload).__name__}", wanted)
        counts = {rows, *(len(group.rows) for group in payload if group.rows is not None)}
        for name, block in [pair for group in payload for pair in group.blocks.items()]:
            if len(block) not in counts:
                got = f"returned the payload's block '{name}' of shape {list(block.shape)}"
                self._refuse("local", got, f"[{rows}, ...], a row a device,")
        if tuple(loss.shape) != (rows,):
            self._refuse("local", f"returned a loss of shape {list(loss.shape)}", f"[{rows}]")
        if set(state) != set(devices):
            got = f"returned the devices' blocks {sorted(state)}"
            self._refuse("local", got, f"{sorted(devices)}, as init made them,")
        self._same("local", state, devices)
        return state, payload, loss

    def combine(
        self,
        server: Blocks,
        received: Received,
        cohort: Cohort,
        round: int,
        hyper: Hyper,
        streams: Streams,
    ) -> Blocks:
        state = self._method.combine(server, received, cohort, round, hyper, streams)
        if not isinstance(state, dict) or set(state) != set(server):
            got = sorted(state) if isinstance(state, dict) else f"a {type(state).__name__}"
            self._refuse("combine", f"returned {got}", f"the server's blocks {sorted(server)}")
        self._same("combine", state, server)
        return state

    def _same(self, part: str, new: Blocks, old: Blocks) -> None:
        """New blocks must have the shapes of the old ones."""
        for name, block in new.items():
            if block.shape != old[name].shape:
                got = f"returned the block '{name}' of shape {list(block.shape)}"
                self._refuse(part, got, str(list(old[name].shape)))

    def _refuse(self, part: str, fault: str, wanted: str) -> NoReturn:
        raise UserError(f"algorithm.name: {part} of '{self._name}' {fault}; {wanted} would do")
