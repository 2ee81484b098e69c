"""Plain twins of the four baselines of Xue and Lau, FedRLR, section VI: one trial, float64, loops
over devices, layers, columns and steps. Minibatches, channels and noise are arguments.

Every device starts from the broadcast model and sends its model; silent devices are left out of
the mean, and a device of weight w_k sends K w_k times its model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from twins.network import Array, Minibatch, gradients

Complex = NDArray[np.complex128]


@dataclass
class Baseline:
    """b: which one. weight: lambda. keep: pruning's. bits: quantiser's, None for none.
    server_step: of b = 4."""

    b: Literal[1, 2, 3, 4]
    weight: float = 0.0
    keep: float = 1.0
    bits: int | None = None
    server_step: float = 1.0


@dataclass
class Sensing:
    """A [m, side] of each layer, None for one that travels as it is; and AMP's settings."""

    matrices: list[Array | None]
    iterations: int
    alpha: float


@dataclass
class Air:
    """One round over channel inversion. h, p [K] complex, p = 0 where silent; rho > 0; noise: real
    part of the receiver's, for every real of the payload in turn."""

    h: Complex
    p: Complex
    rho: float
    noise: Array


@dataclass
class Model:
    """Weights [M, N], biases [N] of each layer."""

    weights: list[Array]
    biases: list[Array]


def svt(matrix: Array, threshold: float) -> Array:
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u @ np.diag([max(value - threshold, 0.0) for value in s]) @ vt


def soft(values: Array, threshold: float) -> Array:
    out = np.zeros_like(values)
    for place, value in np.ndenumerate(values):
        if abs(value) > threshold:
            out[place] = value - threshold if value > 0 else value + threshold
    return out


def prune(layers: list[Array], keep: float) -> list[Array]:
    """All but the largest magnitudes of these layers together at zero."""
    flat = np.concatenate([layer.ravel() for layer in layers])
    count = max(1, round(keep * flat.size))
    kept = np.zeros_like(flat)
    for place in sorted(range(flat.size), key=lambda i: -abs(flat[i]))[:count]:
        kept[place] = flat[place]
    return split(kept, layers)


def split(flat: Array, like: list[Array]) -> list[Array]:
    out, first = [], 0
    for layer in like:
        out.append(flat[first : first + layer.size].reshape(layer.shape))
        first += layer.size
    return out


def quantise(block: Array, bits: int) -> Array:
    """Q(x) = beta + alpha round((2^k - 1)(x - beta) / alpha) / (2^k - 1)."""
    beta, alpha, levels = block.min(), block.max() - block.min(), 2**bits - 1
    if alpha == 0:
        return block
    return beta + alpha * np.round(levels * (block - beta) / alpha) / levels


def amp(y: Array, matrix: Array, iterations: int, alpha: float) -> Array:
    """One column, section 7 of the specification: the iterate of the smallest misfit."""
    m, n = matrix.shape
    x, z = np.zeros(n), y
    best, least = x, float(np.linalg.norm(y))
    for _ in range(iterations):
        tau = np.linalg.norm(z) / sqrt(m)
        x = soft(x + matrix.T @ z, float(alpha * tau))
        misfit = float(np.linalg.norm(y - matrix @ x))
        if misfit < least:
            best, least = x, misfit
        if misfit > 10 * np.linalg.norm(y):
            break
        z = y - matrix @ x + z * (np.count_nonzero(x) / m)
    return best


def measure(weight: Array, matrix: Array | None) -> Array:
    """A W, or W A^T where the first side of W is not the one that A measures."""
    if matrix is None:
        return weight
    return matrix @ weight if weight.shape[0] == matrix.shape[1] else weight @ matrix.T


def recover(measured: Array, like: Array, matrix: Array | None, sensing: Sensing) -> Array:
    if matrix is None:
        return measured
    first = like.shape[0] == matrix.shape[1]
    columns = measured.T if first else measured
    rows = np.stack([amp(y, matrix, sensing.iterations, sensing.alpha) for y in columns])
    return rows.T if first else rows


def local(
    method: Baseline, model: Model, batches: list[Minibatch], eta: float
) -> tuple[Model, float]:
    """A device's steps from the broadcast model, and their mean loss."""
    w, b = [a.copy() for a in model.weights], [a.copy() for a in model.biases]
    total = 0.0
    for batch in batches:
        loss, by_w, by_b = gradients(w, b, batch)
        total += loss
        moved = [a - eta * g for a, g in zip(w + b, by_w + by_b, strict=True)]
        w, b = moved[: len(w)], moved[len(w) :]
        if method.b == 1:
            w = [svt(a, eta * method.weight) for a in w]
        elif method.b == 2:
            w = [soft(a, eta * method.weight) for a in w]
    if method.b == 3:
        w = layerwise(w, method.keep)
    return Model(w, b), total / len(batches)


def layerwise(weights: list[Array], keep: float) -> list[Array]:
    return [prune([a], keep)[0] for a in weights]


def superpose(sent: list[list[Array]], weight: Array, air: Air | None) -> list[Array]:
    """The mean of the devices' blocks: exact, or Y = sum_k h_k p_k K w_k S_k + Z and Re(Y) / (rho
    K_a), K_a the share of K that was on air."""
    devices = len(sent)
    if air is None:
        return [
            np.sum([w * own[i] for w, own in zip(weight, sent, strict=True)], axis=0)
            for i in range(len(sent[0]))
        ]
    y = air.noise[: sum(block.size for block in sent[0])].astype(complex)
    for own, w, h, p in zip(sent, weight, air.h, air.p, strict=True):
        y = y + h * p * devices * w * np.concatenate([block.ravel() for block in own])
    active = devices * weight[air.p != 0].sum()
    return split(y.real / (air.rho * active), sent[0])


def one_round(
    method: Baseline,
    model: Model,
    batches: list[list[Minibatch]],
    weight: Array,
    eta: float,
    sensing: Sensing | None,
    of_weights: Air | None,
    of_biases: Air | None,
) -> tuple[Model, list[float]]:
    """The next global model, and the devices' losses. batches: [device]. Biases of b = 4, which go
    on air, are quantised as well."""
    devices, losses = [], []
    for own in batches:
        device, loss = local(method, model, own, eta)
        devices.append(device)
        losses.append(loss)
    sent = []
    for device in devices:
        blocks = device.weights
        if method.bits is not None:
            if method.b == 4:
                device.biases = [quantise(a, method.bits) for a in device.biases]
            blocks = [quantise(a, method.bits) for a in blocks]
        if sensing is not None:
            blocks = [measure(a, m) for a, m in zip(blocks, sensing.matrices, strict=True)]
        sent.append(blocks)
    weights = superpose(sent, weight, of_weights)
    if sensing is not None:
        weights = [
            recover(y, like, matrix, sensing)
            for y, like, matrix in zip(weights, model.weights, sensing.matrices, strict=True)
        ]
    if method.b == 1:
        steps = len(batches[0])
        weights = [svt(a, steps * eta * method.weight) for a in weights]
    biases = superpose([device.biases for device in devices], weight, of_biases)
    if method.b == 4:
        new = weights + biases
        old = model.weights + model.biases
        new = [a + method.server_step * (m - a) for a, m in zip(old, new, strict=True)]
        weights, biases = new[: len(weights)], new[len(weights) :]
    return Model(weights, biases), losses
