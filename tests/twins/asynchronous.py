"""Computes the asynchronous methods plainly, as their papers have them: one trial, one arrival
after the other, float64. A model is a list of arrays. Devices train as `twins.rivals` has it: by
`prox_sgd` (Xie et al. 2020, Algorithm 1) and `sgd` (Nguyen et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from twins.rivals import Params, plus


def discount(late: int, a: float) -> float:
    """Return the polynomial s(t - tau) of Xie et al. 2020, section 5.2."""
    return (late + 1.0) ** -a


def mixed(x: Params, x_new: Params, a: float) -> Params:
    """Return (1 - a) x + a x_new."""
    return [(1.0 - a) * old + a * new for old, new in zip(x, x_new, strict=True)]


@dataclass
class FedBuffServer:
    """Follows Nguyen et al. 2022, Algorithm 1, with momentum: its Delta is y_0 - y_Q, and so are
    those given here."""

    w: Params
    size: int
    rate: float
    momentum: float = 0.0
    steps: int = 0
    buffer: list[Params] = field(default_factory=list)
    velocity: Params | None = None

    def receive(self, delta: Params, late: int) -> None:
        """Take in an update of a device that began `late` steps ago."""
        scale = 1.0 / math.sqrt(1.0 + late)
        self.buffer.append([scale * d for d in delta])
        if len(self.buffer) < self.size:
            return
        mean = [sum(parts) / self.size for parts in zip(*self.buffer, strict=True)]
        last = [0.0 * d for d in mean] if self.velocity is None else self.velocity
        self.velocity = plus(mean, last, self.momentum)
        self.w = plus(self.w, self.velocity, -self.rate)
        self.buffer, self.steps = [], self.steps + 1
