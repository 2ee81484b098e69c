"""A plain twin of FedRLR+: dense float64 matrices, loops over devices, layers and samples. A
layer's matrix is [weight; bias], its input [x, 1]. Every random number is an argument."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from twins.fedrlr import nearest, project, svd_r
from twins.network import Array, Minibatch, gradients


@dataclass
class Server:
    """theta [M + 1, N] of each layer, and the tangent vector that the server moved along last."""

    theta: list[Array]
    momentum: list[Array]


def start(weights: list[Array], biases: list[Array], ranks: list[int]) -> Server:
    """A dense start, truncated at the norm that it had."""
    theta = []
    for weight, bias, rank in zip(weights, biases, ranks, strict=True):
        dense = np.vstack([weight, bias])
        low = nearest(dense, rank)
        theta.append(low * np.linalg.norm(dense) / np.linalg.norm(low))
    return Server(theta, [np.zeros_like(t) for t in theta])


def local(
    server: Server, ranks: list[int], batches: list[Minibatch], step: float
) -> tuple[list[Array], float]:
    """The device's increment in the tangent space at the broadcast model, a projected gradient step
    for each minibatch; and the mean loss."""
    own, total = [theta.copy() for theta in server.theta], 0.0
    for batch in batches:
        loss, by_weight, by_bias = gradients([w[:-1] for w in own], [w[-1] for w in own], batch)
        total += loss
        for i, rank in enumerate(ranks):
            u, _, v = svd_r(server.theta[i], rank)
            own[i] = own[i] - step * project(u, v, np.vstack([by_weight[i], by_bias[i]]))
    return [w - t for w, t in zip(own, server.theta, strict=True)], total / len(batches)


def combine(
    server: Server,
    increments: list[list[Array]],
    weight: Array,
    errors: list[Array],
    ranks: list[int],
    momentum: float,
    step: float,
) -> Server:
    """Weighted mean of the devices' increments [K][layer], what reception added to it, momentum,
    retraction, and the momentum carried on by projection."""
    theta, carried = [], []
    for i, rank in enumerate(ranks):
        u, _, v = svd_r(server.theta[i], rank)
        mean = sum(w * one[i] for w, one in zip(weight, increments, strict=True))
        xi = mean + project(u, v, errors[i]) + momentum * server.momentum[i]
        theta.append(nearest(server.theta[i] + step * xi, rank))
        u, _, v = svd_r(theta[i], rank)
        carried.append(project(u, v, xi))
    return Server(theta, carried)
