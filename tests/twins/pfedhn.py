"""Computes plainly pFedHN's server (Shamsian et al. 2021, Algorithm 1): one trial, float64, one
device after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from twins.network import Array


@dataclass
class Hypernetwork:
    """Holds weights [M, N], biases [N] of each layer; embeddings [K][E]."""

    weights: list[Array]
    biases: list[Array]
    embeddings: list[Array]


def seen(net: Hypernetwork, device: int) -> list[Array]:
    """Return what each layer sees, and last the generated model."""
    out = [net.embeddings[device]]
    for layer, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        z = out[-1] @ w + b
        out.append(z if layer == len(net.weights) - 1 else np.maximum(z, 0.0))
    return out


def server(
    net: Hypernetwork, change: dict[int, Array], step: float, own_step: float
) -> Hypernetwork:
    """Step after the devices' changes theta~ - theta: phi by the mean of their gradients of |theta
    - theta~|^2 / 2, each embedding by its own."""
    weights = [w.copy() for w in net.weights]
    biases = [b.copy() for b in net.biases]
    embeddings = [v.copy() for v in net.embeddings]
    for device, delta in change.items():
        out, g = seen(net, device), -delta
        for layer in reversed(range(len(net.weights))):
            if layer < len(net.weights) - 1:
                g = g * (out[layer + 1] > 0)
            weights[layer] -= step / len(change) * np.outer(out[layer], g)
            biases[layer] -= step / len(change) * g
            g = net.weights[layer] @ g
        embeddings[device] -= own_step * g
    return Hypernetwork(weights, biases, embeddings)
