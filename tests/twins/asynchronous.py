"""Computes the asynchronous methods plainly, as their papers have them: one trial, one arrival
after the other, float64. A model is a list of arrays (see `twins.rivals`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from twins.network import Minibatch
from twins.rivals import Params, gradient, plus


def discount(late: int, a: float) -> float:
    """Return the polynomial s(t - tau) of Xie et al. 2020, section 5.2."""
    return (late + 1.0) ** -a


def fedasync_worker(
    x_tau: Params, batches: Sequence[Minibatch], rate: float, rho: float
) -> tuple[Params, float]:
    """Return x_new of Xie et al. 2020, Algorithm 1, and the mean loss without the penalty: x <- x -
    rate grad[f + rho/2 |x - x_tau|^2]."""
    x, total = x_tau, 0.0
    for batch in batches:
        loss, along = gradient(x, batch)
        total += loss
        x = plus(x, plus(along, plus(x, x_tau, -1.0), rho), -rate)
    return x, total / len(batches)


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


def fedbuff_client(w: Params, batches: Sequence[Minibatch], rate: float) -> tuple[Params, float]:
    """Return Delta = y_0 - y_Q after Q steps of SGD, and the mean loss."""
    y, total = w, 0.0
    for batch in batches:
        loss, along = gradient(y, batch)
        total += loss
        y = plus(y, along, -rate)
    return plus(w, y, -1.0), total / len(batches)
