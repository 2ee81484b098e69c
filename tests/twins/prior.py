"""Computes plainly pFedBreD (Shi et al. 2023, Algorithm 1, eq. (14), (24) and the authors'
program), pFedMe (Dinh, Tran, Nguyen 2020, Algorithm 1, and the published program) and Per-FedAvg
(Fallah, Mokhtari, Ozdaglar 2020, Algorithm 1): one trial, float64, loops over devices, local and
proximal steps. A model is one vector; minibatches are arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twins.network import Array, Minibatch


@dataclass
class Rates:
    penalty: float = 15.0
    personal_learning_rate: float = 0.01
    learning_rate: float = 0.01
    eta: float = 0.05
    eta_alpha: float = 0.01
    server_learning_rate: float = 1.0
    weight_decay: float = 1e-3


@dataclass
class Device:
    """Holds theta and the local model at the end of the device's last round."""

    theta: Array
    last: Array


Gradient = Callable[[Array, Minibatch], Array]
Batches = Sequence[Sequence[Minibatch]]
"""[local step][draw]."""


def prox(
    gradient: Gradient, x: Minibatch, begin: Array, mean: Array, rates: Rates, steps: int
) -> Array:
    theta = begin.copy()
    for _ in range(steps):
        pull = rates.penalty * (theta - mean)
        theta = theta - rates.personal_learning_rate * (gradient(theta, x) + pull)
    return theta


def pfedbred(
    gradient: Gradient,
    w: Array,
    device: Device,
    batches: Batches,
    rates: Rates,
    strategy: str,
    variant: str,
    steps: int,
) -> tuple[Array, Device]:
    """Return the local model after a device's local work, and what the device keeps."""
    theta, last = device.theta, device.last
    envelope_rate = rates.learning_rate * rates.penalty
    eta, eta_alpha = rates.eta, rates.eta_alpha
    for draws in batches:
        x = draws[0]
        memory = eta * (last - theta)
        base = w
        if strategy == "none":
            mean = begin = w
        elif strategy == "lg":
            mean = begin = w - eta_alpha * gradient(w, x)
        elif strategy == "meg":
            mean = w - memory
            begin = w if variant == "code" else mean
        elif variant == "paper":
            mean = begin = w - eta_alpha * gradient(w, x) - memory
        else:
            inner = draws[1] if variant == "code" else x
            ahead = w - eta_alpha * gradient(w - eta_alpha * gradient(w, inner), x)
            mean = begin = ahead - memory
            if variant == "code":
                base = begin = ahead
        theta = prox(gradient, x, begin, mean, rates, steps)
        w = base - envelope_rate * (mean - theta)
    return w, Device(theta, w)


def pfedme_original(
    gradient: Gradient, w: Array, batches: Batches, rates: Rates, steps: int
) -> Array:
    """Run the published program: decay, warm start; its personal model is w."""
    theta = w.copy()
    for x, *_ in batches:
        for _ in range(steps):
            slope = gradient(theta, x) + rates.penalty * (theta - w) + rates.weight_decay * theta
            theta = theta - rates.personal_learning_rate * slope
        w = w - rates.learning_rate * rates.penalty * (w - theta)
    return w


def per_fedavg(gradient: Gradient, w: Array, batches: Batches, rates: Rates) -> Array:
    """Take steps along the gradient after a step, without the second-order term."""
    for outer, inner in batches:
        ahead = w - rates.personal_learning_rate * gradient(w, inner)
        w = w - rates.learning_rate * gradient(ahead, outer)
    return w


def server(w: Array, local: Sequence[Array], samples: Sequence[float], rate: float) -> Array:
    """Take Algorithm 1, line 12: (1 - beta) w + beta times the mean by shares."""
    mean = sum(n / sum(samples) * one for n, one in zip(samples, local, strict=True))
    return (1 - rate) * w + rate * mean
