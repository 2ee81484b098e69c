"""Users and a server as personalised methods' published programs have them: each user has tensors
of its own, an optimiser steps on them, gradients are autograd's, in float64. Nothing is stacked,
and nothing of otafl is used. Minibatches are arguments.

w is the local model, theta the personal one, f the mean cross-entropy of a minibatch X, lambda the
penalty, alpha the step of theta, alpha_m that of w, beta the server's.

pFedMe (Dinh, Tran, Nguyen 2020, Algorithm 1; lines 6 to 9 of it):

    theta ~ argmin f(theta; X) + lambda/2 |theta - w|^2,   w <- w - alpha_m lambda (w - theta)

Per-FedAvg, first order (Fallah, Mokhtari, Ozdaglar 2020, Algorithm 1, lines 6 to 8):

    u = w - alpha grad f(w; X1),   w <- w - alpha_m grad f(u; X2)

pFedBreD (Shi et al. 2023, Algorithm 1) with the spherical Gaussian prior, of mean mu:

    theta ~ argmin f(theta; X) + lambda/2 |theta - mu|^2                         # eq. (2)
    w <- w - alpha_m lambda (mu - theta)                                         # eq. (13)
    lg    mu = w - eta_alpha grad f(w)                                           # eq. (14)
    meg   mu = w - eta (last - theta)                                            # eq. (14)
    mh    mu = w - eta_alpha grad f(w) - eta (last - theta)                      # eq. (14)
    c2    mu = w - eta_alpha grad f(w - eta_alpha grad f(w)) - eta (last - theta)   # eq. (24)

    w <- (1 - beta) w + beta sum_i (n_i / n) w_i over the users that are aggregated   # line 12

last is w at the end of the user's last round. Equation (14) leaves open where the K steps to theta
start: at mu ("paper"). The program ("code") starts meg at w; in mh it moves w itself to
w - eta_alpha grad f(w - eta_alpha grad f(w; X1); X2) first, and starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Tensors = list[Tensor]


@dataclass(frozen=True)
class Sample:
    """A minibatch: x [B, M], y [B], and each sample's share [B] of the mean."""

    x: Tensor
    y: Tensor
    share: Tensor


class Envelope(torch.optim.Optimizer):
    """Steps on f + lambda/2 |theta - mu|^2, as the programs' optimiser of the personal model."""

    def __init__(self, params: Iterable[Tensor], alpha: float, penalty: float) -> None:
        super().__init__(params, {"lr": alpha, "penalty": penalty})

    @torch.no_grad()
    def towards(self, mean: Tensors) -> None:
        for group in self.param_groups:
            for p, mu in zip(group["params"], mean, strict=True):
                p.sub_(group["lr"] * (p.grad + group["penalty"] * (p - mu)))


class User:
    """Keeps theta and last between rounds; `train` returns w after its local steps."""

    def __init__(self, start: Tensors, forward: Callable[[Tensors, Tensor], Tensor]) -> None:
        self.theta, self.last, self._forward = copied(start), copied(start), forward

    def slope(self, at: Tensors, sample: Sample) -> Tensors:
        leaves = [p.detach().clone().requires_grad_() for p in at]
        self._loss(leaves, sample).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    def _loss(self, at: Tensors, sample: Sample) -> Tensor:
        log_p = torch.log_softmax(self._forward(at, sample.x), 1)
        return -(sample.share * log_p.gather(1, sample.y[:, None])[:, 0]).sum()

    def solve(self, begin: Tensors, mean: Tensors, sample: Sample, rates: Any) -> Tensors:
        """Take K steps to the proximal point."""
        theta = [torch.nn.Parameter(p.clone()) for p in begin]
        optimiser = Envelope(theta, rates.alpha, rates.penalty)
        for _ in range(rates.prox_steps):
            optimiser.zero_grad()
            self._loss(theta, sample).backward()
            optimiser.towards(mean)
        return [p.detach() for p in theta]

    def train(
        self, broadcast: Tensors, steps: Sequence[Sequence[Sample]], method: str, rates: Any
    ) -> Tensors:
        """steps: the minibatches of each local step, in the order in which they are drawn."""
        w = copied(broadcast)
        for samples in steps:
            if method == "per_fedavg":
                u = ahead(w, self.slope(w, samples[0]), rates.alpha)
                w = ahead(w, self.slope(u, samples[1]), rates.alpha_m)
                continue
            base, mean, begin = self._prior(w, samples, method, rates)
            self.theta = self.solve(begin, mean, samples[-1], rates)
            pulled = [mu - theta for mu, theta in zip(mean, self.theta, strict=True)]
            w = ahead(base, pulled, rates.alpha_m * rates.penalty)
        self.last = copied(w)
        return w

    def _prior(
        self, w: Tensors, samples: Sequence[Sample], method: str, rates: Any
    ) -> tuple[Tensors, Tensors, Tensors]:
        """The local model that is moved, mu, and where the solver starts."""
        memory = [last - theta for last, theta in zip(self.last, self.theta, strict=True)]
        x = samples[-1]
        if method == "pfedme":
            return w, w, w
        if method == "lg":
            mean = ahead(w, self.slope(w, x), rates.eta_alpha)
            return w, mean, mean
        if method in ("meg", "meg paper"):
            mean = ahead(w, memory, rates.eta)
            return w, mean, w if method == "meg" else mean
        if method == "mh paper":
            mean = ahead(ahead(w, self.slope(w, x), rates.eta_alpha), memory, rates.eta)
            return w, mean, mean
        inner = ahead(w, self.slope(w, samples[0]), rates.eta_alpha)
        meta = ahead(w, self.slope(inner, x), rates.eta_alpha)
        mean = ahead(meta, memory, rates.eta)
        return (meta, mean, meta) if method == "mh" else (w, mean, mean)


def ahead(at: Tensors, slope: Tensors, step: float) -> Tensors:
    return [p - step * g for p, g in zip(at, slope, strict=True)]


def copied(at: Tensors) -> Tensors:
    return [p.detach().clone() for p in at]


def aggregated(w: Tensors, local: Sequence[Tensors], counts: Sequence[int], beta: float) -> Tensors:
    """Line 12, over the users that are aggregated and their numbers of samples."""
    total = sum(counts)
    means = [
        sum(n / total * p for n, p in zip(counts, each, strict=True))
        for each in zip(*local, strict=True)
    ]
    return [(1.0 - beta) * p + beta * mean for p, mean in zip(w, means, strict=True)]


def perceptron(params: Tensors, x: Tensor) -> Tensor:
    """Weights [M, N] and biases [N] in turn, with ReLU between."""
    *hidden, last = list(zip(params[::2], params[1::2], strict=True))
    for weight, bias in hidden:
        x = torch.relu(x @ weight + bias)
    return x @ last[0] + last[1]
