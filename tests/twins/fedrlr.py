"""A plain twin of FedRLR: dense float64 matrices, loops over devices, layers and samples.

Y. Xue and V. Lau, "Riemannian Low-Rank Model Compression for Federated Learning with Over-the-Air
Aggregation", Algorithm 1, by its equation numbers. Every random number is an argument. Where the
paper leaves a choice: biases take plain SGD steps with the same penalty; silent devices are left
out of the mean; a device's signal is scaled by sqrt(K w_k), which is 1 at equal weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from twins.network import Array, Minibatch, gradients

Complex = NDArray[np.complex128]


@dataclass
class Model:
    """theta [M, N] and bias [N] of each layer."""

    theta: list[Array]
    bias: list[Array]


@dataclass
class Schedule:
    """eta = q / (nu + t) and mu = c1 / eta, or the constant mu if c1 is None. kappa_gradient and
    kappa_penalty: 1/K in the paper."""

    q: float
    nu: float
    c1: float | None
    mu: float
    kappa_gradient: float
    kappa_penalty: float

    def at(self, t: int) -> tuple[float, float]:
        eta = self.q / (self.nu + t)
        return eta, self.mu if self.c1 is None else self.c1 / eta


@dataclass
class Air:
    """One round's link. h, p [K] complex, p = 0 where silent; rho > 0; z_u, z_v, z_b: complex
    noise of each layer. bias_rho: receive scaling of the linear sum of the biases; None where
    they are carried free of error."""

    h: Complex
    p: Complex
    rho: float
    z_u: list[Complex]
    z_v: list[Complex]
    z_b: list[Complex]
    bias_rho: float | None


def svd_r(matrix: Array, rank: int) -> tuple[Array, Array, Array]:
    """U, s, V of the best rank-R approximation."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u[:, :rank], s[:rank], vt[:rank].T


def nearest(matrix: Array, rank: int) -> Array:
    """P_{M_R}: the best rank-R approximation itself."""
    u, s, v = svd_r(matrix, rank)
    return u @ np.diag(s) @ v.T


def project(u: Array, v: Array, delta: Array) -> Array:
    """eq. (47)."""
    pu, pv = u @ u.T, v @ v.T
    return pu @ delta + delta @ pv - pu @ delta @ pv


def start(weights: list[Array], ranks: list[int], rescale: bool) -> Model:
    """A random point of M_R: a dense start truncated, with its norm restored if asked for."""
    theta = [nearest(w, r) for w, r in zip(weights, ranks, strict=True)]
    if rescale:
        theta = [
            t * np.linalg.norm(w) / np.linalg.norm(t) for t, w in zip(theta, weights, strict=True)
        ]
    return Model(theta, [np.zeros(w.shape[1]) for w in weights])


def local(
    own: Model, server: Model, ranks: list[int], batches: list[Minibatch], plan: Schedule, t: int
) -> tuple[Model, float]:
    """Steps 1 and 2 of Algorithm 1 for one device, once for each minibatch; and the mean loss."""
    eta, mu = plan.at(t)
    total = 0.0
    for batch in batches:
        loss, by_theta, by_bias = gradients(own.theta, own.bias, batch)
        total += loss
        theta, bias = [], []
        for i, rank in enumerate(ranks):
            delta = plan.kappa_gradient * by_theta[i]  # eq. (49)
            delta = delta + plan.kappa_penalty * mu * (own.theta[i] - server.theta[i])
            u, _, v = svd_r(own.theta[i], rank)
            riemannian = project(u, v, delta)  # eq. (17)
            theta.append(nearest(own.theta[i] - eta * riemannian, rank))  # eqs. (18), (19)
            pull = plan.kappa_penalty * mu * (own.bias[i] - server.bias[i])
            bias.append(own.bias[i] - eta * (plan.kappa_gradient * by_bias[i] + pull))
        own = Model(theta, bias)
    return own, total / len(batches)


def precode(theta: Array, rank: int, signs: Array, like: Array) -> tuple[Array, Array]:
    """eqs. (21), (25), (26): S_U [M, R] and S_V [R, N], with F = signs / sqrt(R).

    An SVD leaves the sign of each pair of singular vectors open. The law of F does not depend on
    it, a draw does: `like` [M, R] holds left vectors of the wanted signs.
    """
    u, s, v = svd_r(theta, rank)
    side = np.diag(np.sign(np.sum(u * like, axis=0)))
    root = np.diag(np.sqrt(s))
    f = signs / sqrt(rank)
    return u @ side @ root @ f, f.T @ (v @ side @ root).T


def receive(signals: list[Array], air: Air, noise: Complex, rho: float) -> Array:
    """eqs. (27), (28): Y = sum_k h_k p_k S_k + Z, then Re(Y) / rho."""
    y = noise.copy()
    for signal, h, p in zip(signals, air.h, air.p, strict=True):
        y = y + h * p * signal
    return y.real / rho


def aggregate(
    devices: list[Model],
    ranks: list[int],
    signs: list[list[Array]],
    like: list[list[Array]],
    weight: Array,
    air: Air,
) -> Model:
    """Steps 3 to 6 of Algorithm 1: the next Theta_0. signs, like: [device][layer]."""
    count = len(devices)
    boost = np.sqrt(count * weight)
    active = count * weight[air.p != 0].sum()  # K_a at equal weights
    theta, bias = [], []
    for i, rank in enumerate(ranks):
        pairs = [
            precode(own.theta[i], rank, signs[k][i], like[k][i]) for k, own in enumerate(devices)
        ]
        left = [b * u for b, (u, _) in zip(boost, pairs, strict=True)]
        right = [b * v for b, (_, v) in zip(boost, pairs, strict=True)]
        x_u = receive(left, air, air.z_u[i], air.rho)
        x_v = receive(right, air, air.z_v[i], air.rho)
        theta.append(nearest((x_u / sqrt(active)) @ (x_v / sqrt(active)), rank))  # eq. (31)
        own_bias = [count * w * own.bias[i] for w, own in zip(weight, devices, strict=True)]
        if air.bias_rho is None:
            bias.append(sum(own_bias) / count)
        else:
            bias.append(receive(own_bias, air, air.z_b[i], air.bias_rho) / active)
    return Model(theta, bias)
