"""Server optimisers over the method's own server step, Delta = new - old model.

Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2 (FedAdagrad, FedAdam, FedYogi),
and FedAvgM (Hsu, Qi, Brown 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, Hyper

MODEL = "model"
"""The server's block [S, P] that is optimised; others are the method's own affair."""


class Average:
    """Leaves the method's own step as it is."""

    def __init__(self, config: Any, hyper: Hyper) -> None:
        pass

    def init(self, server: Blocks) -> Blocks:
        return {}

    def step(self, old: Blocks, new: Blocks, memory: Blocks) -> tuple[Blocks, Blocks]:
        return new, memory


class Momentum:
    """FedAvgM. Memory: m [S, P]."""

    def __init__(self, config: Any, hyper: Hyper) -> None:
        self._hyper = hyper

    def init(self, server: Blocks) -> Blocks:
        return {"m": torch.zeros_like(server[MODEL])}

    def step(self, old: Blocks, new: Blocks, memory: Blocks) -> tuple[Blocks, Blocks]:
        """The server's blocks and the memory after the step."""
        eta, beta = self._hyper["learning_rate"][:, None], self._hyper["beta1"][:, None]
        m = torch.addcmul(new[MODEL] - old[MODEL], beta, memory["m"])
        return new | {MODEL: torch.addcmul(old[MODEL], eta, m)}, {"m": m}


class Adaptive:
    """FedAdagrad, FedAdam or FedYogi, which differ in their mean square v. Memory: m and v,
    [S, P]."""

    def __init__(self, config: Any, hyper: Hyper) -> None:
        self._hyper = hyper
        self._square = _SQUARES[config.name]

    def init(self, server: Blocks) -> Blocks:
        start = (self._hyper["tau"][:, None] ** 2).expand_as(server[MODEL])
        return {"m": torch.zeros_like(server[MODEL]), "v": start.clone()}

    def step(self, old: Blocks, new: Blocks, memory: Blocks) -> tuple[Blocks, Blocks]:
        """The server's blocks and the memory after the step."""
        hyper = {name: value[:, None] for name, value in self._hyper.items()}
        delta = new[MODEL] - old[MODEL]
        m = torch.lerp(delta, memory["m"], hyper["beta1"])
        v = self._square(memory["v"], delta.square(), hyper)
        moved = old[MODEL] + hyper["learning_rate"] * m / (v.sqrt() + hyper["tau"])
        return new | {MODEL: moved}, {"m": m, "v": v}


def _adagrad(v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
    return v + square


def _adam(v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
    return hyper["beta2"] * v + (1.0 - hyper["beta2"]) * square


def _yogi(v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
    return v - (1.0 - hyper["beta2"]) * square * torch.sign(v - square)


_SQUARES: dict[str, Callable[[Tensor, Tensor, Hyper], Tensor]] = {
    "adagrad": _adagrad,
    "adam": _adam,
    "yogi": _yogi,
}
