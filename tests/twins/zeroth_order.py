"""Computes plainly a round of zeroth-order federated learning: loops over devices, local steps and
directions, one trial, float64. Minibatches, directions and the devices' choices are arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
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
    choices: list[NDArray[np.int64]] | None = None,
) -> tuple[Array, list[Array], list[float]]:
    """Return the next global model, and each device's slopes [q] and mean loss.

    batches: [device][local step]. directions: [q, P]. choices: the direction of each local step
    [device][step]; all directions in each step if not given.
    """
    count, total = len(directions), sum(samples)
    sent, losses = [], []
    for device, own in enumerate(batches):
        w, z, seen = model.copy(), np.zeros(count), []
        for place, batch in enumerate(own):
            used: Sequence[int] = range(count)
            if choices is not None:
                used = [int(choices[device][place])]
            move = np.zeros_like(w)
            for j in used:
                ahead = loss_of(w + smoothing * directions[j], batch)
                behind = loss_of(w - smoothing * directions[j], batch)
                slope = (ahead - behind) / (2 * smoothing)
                seen.append(0.5 * (ahead + behind))
                z[j] += slope * (count if choices is not None else 1)
                move += slope * directions[j] / len(used)
            w = w - step * move
        sent.append(z)
        losses.append(float(np.mean(seen)))
    moved = model.copy()
    for j in range(count):
        mean = sum(n / total * z[j] for n, z in zip(samples, sent, strict=True))
        moved -= step / count * mean * directions[j]
    return moved, sent, losses
