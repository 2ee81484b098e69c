"""TEMPORARY: methods that still have the long signatures, as the contract of today."""

from __future__ import annotations

from typing import Any

from otafl.algorithms.base import Algorithm


class Adapted(Algorithm):
    def __init__(self, method: Any) -> None:
        self.method = method
        self.model = getattr(method, "model", None)

    def init(self, *given: Any) -> Any:
        return self.method.init(*given)

    def broadcast(self, *given: Any) -> Any:
        return self.method.broadcast(*given)

    def local(self, broadcast: Any, devices: Any, context: Any) -> Any:
        c = context
        return self.method.local(broadcast, devices, c.cohort, c.work, c.hyper, c.streams)

    def combine(self, server: Any, received: Any, context: Any) -> Any:
        c = context
        return self.method.combine(server, received, c.cohort, c.round, c.hyper, c.streams)

    def views(self, *given: Any) -> Any:
        return self.method.views(*given)

    def flops(self, *given: Any) -> Any:
        return self.method.flops(*given)

    def sends(self, context: Any) -> Any:
        ask = getattr(self.method, "sends", None)
        return None if ask is None else ask(context.cohort, context.round, context.streams)

    def row_weights(self, context: Any) -> Any:
        ask = getattr(self.method, "row_weights", None)
        return context.cohort.weight if ask is None else ask(context.cohort)

    def version(self, server: Any) -> Any:
        ask = getattr(self.method, "version", None)
        return None if ask is None else ask(server)

    def levels(self) -> Any:
        ask = getattr(self.method, "levels", None)
        return () if ask is None else tuple(ask())

    def measures(self, *given: Any) -> Any:
        ask = getattr(self.method, "measures", None)
        return {} if ask is None else ask(*given)

    def constants(self) -> Any:
        ask = getattr(self.method, "constants", None)
        return {} if ask is None else ask()

    def model_of(self, view: str) -> Any:
        method = self.method
        sizes = getattr(method, "networks", None) or getattr(method, "sizes", None)
        if view.startswith("level") and sizes:
            return sizes[int(view.removeprefix("level"))]
        if hasattr(method, "network"):
            return method.network
        if hasattr(method, "atom"):
            return method.atom
        return sizes[0] if sizes else method.model

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)


def adapted(method: Any) -> Algorithm:
    return method if isinstance(method, Algorithm) else Adapted(method)
