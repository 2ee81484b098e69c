"""Computes plainly the rounds of federated LoRA in its modes: loops over devices and local steps,
one trial, float64, dense gradients. Weights [M, N] of inputs and outputs; A [r, M], B [N, r]. The
last layer is the head, which all modes train and average."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from twins.network import Array, Minibatch, gradients


@dataclass
class Server:
    """W_0 and the factors of each layer before the head, all biases, and the head."""

    frozen: list[Array]
    biases: list[Array]
    head: Array
    a: list[Array]
    b: list[Array]
    r: list[Array] = field(default_factory=list)
    scale: float = 1.0

    def weights(self) -> list[Array]:
        """W = W_0 + (alpha / r) (B R A)^T, and the head."""
        inner = self.r or [np.eye(len(a)) for a in self.a]
        every = zip(self.frozen, self.a, inner, self.b, strict=True)
        return [w + self.scale * (b @ r @ a).T for w, a, r, b in every] + [self.head]


def copy(server: Server) -> Server:
    """A device's own copy."""
    lists = (server.frozen, server.biases, [server.head], server.a, server.b, server.r)
    w, bias, head, a, b, r = ([block.copy() for block in one] for one in lists)
    return Server(w, bias, head[0], a, b, r, server.scale)


def local(
    server: Server, trained: str, batches: list[Minibatch], step: float
) -> tuple[Server, float]:
    """SGD on the factors that are named in `trained`, and on the head."""
    own, total = copy(server), 0.0
    for batch in batches:
        loss, by_w, by_b = gradients(own.weights(), own.biases, batch)
        total += loss
        inner = own.r or [np.eye(len(a)) for a in own.a]
        moved_a, moved_b, moved_r = [], [], []
        for g, a, r, b in zip(by_w[:-1], own.a, inner, own.b, strict=True):
            moved_a.append(a - step * own.scale * (g @ b @ r).T * ("a" in trained))
            moved_b.append(b - step * own.scale * g.T @ a.T @ r.T * ("b" in trained))
            moved_r.append(r - step * own.scale * b.T @ g.T @ a.T)
        own.a, own.b = moved_a, moved_b
        if "r" in trained:
            own.r = moved_r
        own.head = own.head - step * by_w[-1]
        own.biases[-1] = own.biases[-1] - step * by_b[-1]
    return own, total / len(batches)


def average(server: Server, devices: list[Server], share: list[float], eta: float) -> Server:
    """Move every factor and the head by eta times the mean of the devices' increments."""
    out = copy(server)
    for name in ("a", "b", "r"):
        mean = [
            sum(w * getattr(one, name)[i] for w, one in zip(share, devices, strict=True))
            for i in range(len(getattr(server, name)))
        ]
        old = getattr(server, name)
        setattr(out, name, [o + eta * (m - o) for o, m in zip(old, mean, strict=True)])
    mean_head = sum(w * one.head for w, one in zip(share, devices, strict=True))
    mean_bias = sum(w * one.biases[-1] for w, one in zip(share, devices, strict=True))
    out.head = server.head + eta * (mean_head - server.head)
    out.biases[-1] = server.biases[-1] + eta * (mean_bias - server.biases[-1])
    return out


def correct(server: Server, moved: Server, devices: list[Server], share: list[float]) -> Server:
    """Add the residual mean(B A) - mean(B) mean(A) to W_0 (FedEx-LoRA)."""
    out = copy(moved)
    for i in range(len(server.a)):
        mean = sum(w * one.b[i] @ one.a[i] for w, one in zip(share, devices, strict=True))
        mean_a = sum(w * one.a[i] for w, one in zip(share, devices, strict=True))
        mean_b = sum(w * one.b[i] for w, one in zip(share, devices, strict=True))
        out.a[i], out.b[i] = mean_a, mean_b
        out.frozen[i] = server.frozen[i] + server.scale * (mean - mean_b @ mean_a).T
    return out
