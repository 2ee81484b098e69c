"""Computes plainly federated averaging (McMahan et al. 2017, Algorithm 1): loops over devices and
local steps, one trial, float64. Minibatches are arguments."""

from __future__ import annotations

from twins.network import Array, Minibatch, gradients


def one_round(
    weights: list[Array],
    biases: list[Array],
    batches: list[list[Minibatch]],
    samples: list[float],
    step: float,
    server_step: float,
) -> tuple[list[Array], list[Array], list[float]]:
    """Return the next global model, and each device's mean loss over its steps.

    batches: [device][local step]. samples: n_k of each device, so its share is n_k / n.
    """
    mean = [0.0 * block for block in weights + biases]
    losses = []
    for own, n_k in zip(batches, samples, strict=True):
        w, b = [a.copy() for a in weights], [a.copy() for a in biases]
        total = 0.0
        for batch in own:
            loss, by_w, by_b = gradients(w, b, batch)
            total += loss
            w = [a - step * g for a, g in zip(w, by_w, strict=True)]
            b = [a - step * g for a, g in zip(b, by_b, strict=True)]
        mean = [m + n_k / sum(samples) * a for m, a in zip(mean, w + b, strict=True)]
        losses.append(total / len(own))
    moved = [a + server_step * (m - a) for a, m in zip(weights + biases, mean, strict=True)]
    return moved[: len(weights)], moved[len(weights) :], losses
