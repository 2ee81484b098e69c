"""Computes plainly a round of zeroth-order federated learning: loops over devices, local steps and
directions, one trial, float64. Minibatches and directions are arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from twins.network import Array, Minibatch

Loss = Callable[[Array, Minibatch], float]


def one_round(
    model: Array,
    directions: Array,
    batches: list[list[Minibatch]],
    samples: list[float],
    step: float,
    smoothing: float,
    loss_of: Loss,
) -> tuple[Array, list[Array], list[float]]:
    """Return the next global model, and each device's slopes [q] and mean loss.

    batches: [device][local step]. directions: [q, P].
    """
    count, total = len(directions), sum(samples)
    sent, losses = [], []
    for own in batches:
        w, z, seen = model.copy(), np.zeros(count), []
        for batch in own:
            move = np.zeros_like(w)
            for j in range(count):
                ahead = loss_of(w + smoothing * directions[j], batch)
                behind = loss_of(w - smoothing * directions[j], batch)
                slope = (ahead - behind) / (2 * smoothing)
                seen.append(0.5 * (ahead + behind))
                z[j] += slope
                move += slope * directions[j] / count
            w = w - step * move
        sent.append(z)
        losses.append(float(np.mean(seen)))
    moved = model.copy()
    for j in range(count):
        mean = sum(n / total * z[j] for n, z in zip(samples, sent, strict=True))
        moved -= step / count * mean * directions[j]
    return moved, sent, losses
