"""A plain twin of a round of FedHM (Yao et al., Algorithm 1) on a fully connected ReLU network: one
trial, loops over devices, steps and samples, float64 NumPy. Minibatches are arguments.

Weights are W [M, N], y = x W + b, as the server has them; M = W^T [N, M] is what is factorised,
M = L R, so that a low-rank layer is y = L (R x) + b. The last layer is the classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from twins.network import Array, Minibatch


@dataclass
class Device:
    """ranks: of every layer, None where it is dense. present: [classes] bool. alpha: unnormalised
    weight. came: whether the server hears it."""

    ranks: list[int | None]
    batches: list[Minibatch]
    present: np.ndarray
    alpha: float = 1.0
    came: bool = True


@dataclass
class Settings:
    step: float
    momentum: float
    weight_decay: float
    frobenius_decay: float
    masked_loss: bool = True
    base: str = "truncated"
    tangent: bool = False
    frame: tuple[int | None, ...] = ()


def truncated(matrix: Array, rank: int) -> tuple[Array, Array]:
    """Eq. (18): L = U S^(1/2), R = S^(1/2) V^T."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u[:, :rank] * np.sqrt(s[:rank]), np.sqrt(s[:rank])[:, None] * vt[:rank]


def projected(matrix: Array, rank: int, change: Array) -> Array:
    """The change on the tangent space at the matrix's first singular vectors."""
    u, _, vt = np.linalg.svd(matrix, full_matrices=False)
    left, right = u[:, :rank] @ u[:, :rank].T, vt[:rank].T @ vt[:rank]
    return left @ change + change @ right - left @ change @ right


def one_round(
    weights: list[Array], biases: list[Array], devices: list[Device], settings: Settings
) -> tuple[list[Array], list[Array], list[float]]:
    """The next server model, and each device's mean loss."""
    trained = [train(weights, biases, device, settings) for device in devices]
    heard = [p for p, device in enumerate(devices) if device.came]
    total = sum(devices[p].alpha for p in heard)
    new_weights, new_biases = [], []
    last = len(weights) - 1
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        if i == last:
            row = w.copy(), b.copy()
            for c in range(len(b)):
                have = [p for p in heard if devices[p].present[c] or not settings.masked_loss]
                share = sum(devices[p].alpha for p in have)
                if not have:
                    continue
                row[0][:, c] = row[1][c] = 0.0
                for p in have:
                    row[0][:, c] += devices[p].alpha / share * trained[p][0][i][:, c]
                    row[1][c] += devices[p].alpha / share * trained[p][1][i][c]
            new_weights.append(row[0])
            new_biases.append(row[1])
            continue
        mean, bias = np.zeros_like(w.T), np.zeros_like(b)
        for p in heard:
            rank, alpha = devices[p].ranks[i], devices[p].alpha / total
            begin = w.T if rank is None else np.matmul(*truncated(w.T, rank))
            change = trained[p][0][i].T - begin
            frame = rank
            if settings.tangent and settings.frame:
                frame = settings.frame[i] if rank is None else rank
            if settings.tangent and frame is not None:
                change = projected(w.T, frame, change)
            mean += alpha * ((begin if settings.base == "truncated" else w.T) + change)  # eq. (2)
            bias += alpha * trained[p][1][i]
        new_weights.append(mean.T)
        new_biases.append(bias)
    return new_weights, new_biases, [one[2] for one in trained]


def train(
    weights: list[Array], biases: list[Array], device: Device, settings: Settings
) -> tuple[list[Array], list[Array], float]:
    """Weights and biases after local work, factors multiplied out (eq. (1)), and the mean loss."""
    params: list[Array] = []
    for w, b, rank in zip(weights, biases, device.ranks, strict=True):
        params += [*([w.T] if rank is None else truncated(w.T, rank)), b]
    params = [p.copy() for p in params]
    velocity = [np.zeros_like(p) for p in params]
    places, at = [], 0
    for rank in device.ranks:
        count = 1 if rank is None else 2
        places.append((list(range(at, at + count)), at + count))
        at += count + 1
    total = 0.0
    for batch in device.batches:
        loss, grads = gradients(params, places, batch, device, settings)
        total += loss
        for own, b in places:
            for i in [*own, b]:
                if len(own) == 1 or i == b:
                    grads[i] = grads[i] + settings.weight_decay * params[i]
            if len(own) == 2:  # Frobenius decay
                left, right = params[own[0]], params[own[1]]
                grads[own[0]] = grads[own[0]] + settings.frobenius_decay * left @ right @ right.T
                grads[own[1]] = grads[own[1]] + settings.frobenius_decay * left.T @ left @ right
        for i, grad in enumerate(grads):
            velocity[i] = settings.momentum * velocity[i] + grad
            params[i] = params[i] - settings.step * velocity[i]
    out = []
    for own, _ in places:
        out.append(params[own[0]].T if len(own) == 1 else (params[own[0]] @ params[own[1]]).T)
    return out, [params[b] for _, b in places], total / len(device.batches)


def gradients(
    params: list[Array],
    places: list[tuple[list[int], int]],
    batch: Minibatch,
    device: Device,
    settings: Settings,
) -> tuple[float, list[Array]]:
    """Mean loss and its gradient by every parameter, sample by sample."""
    grads = [np.zeros_like(p) for p in params]
    loss = 0.0
    for x, y, share in zip(batch.x, batch.y, batch.weight, strict=True):
        inputs, inner = [x], []
        for own, b in places:
            v = inputs[-1]
            z = params[own[1]] @ v if len(own) == 2 else v
            inner.append(z)
            inputs.append(np.maximum(params[own[0]] @ z + params[b], 0.0))
        scores = params[places[-1][0][0]] @ inner[-1] + params[places[-1][1]]
        if settings.masked_loss:
            scores = scores * device.present
        top = scores.max()
        log_p = scores - top - np.log(np.exp(scores - top).sum())
        loss -= share * log_p[y]
        g = np.exp(log_p)
        g[y] -= 1.0
        if settings.masked_loss:
            g = g * device.present
        for layer in reversed(range(len(places))):
            own, b = places[layer]
            grads[b] += share * g
            grads[own[0]] += share * np.outer(g, inner[layer])
            g = params[own[0]].T @ g
            if len(own) == 2:
                grads[own[1]] += share * np.outer(g, inputs[layer])
                g = params[own[1]].T @ g
            if layer:
                g = g * (inputs[layer] > 0)
    return float(loss), grads
