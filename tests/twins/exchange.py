"""Computes FedAMP, FedFomo and FedPAC plainly, as their papers have them: one trial, float64, loops
over devices, samples and steps. A model is one vector, layer by layer its weight [M, N] and bias
[N]. Minibatches, and whose models are forwarded, are arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from twins.network import Array, Minibatch, gradients


def layers(theta: Array, widths: Sequence[int]) -> tuple[list[Array], list[Array]]:
    """Return weights and biases of a vector."""
    weights, biases, at = [], [], 0
    for m, n in itertools.pairwise(widths):
        weights.append(theta[at : at + m * n].reshape(m, n))
        biases.append(theta[at + m * n : at + m * n + n])
        at += m * n + n
    return weights, biases


def vector(weights: list[Array], biases: list[Array]) -> Array:
    parts = [np.concatenate([w.ravel(), b]) for w, b in zip(weights, biases, strict=True)]
    return np.concatenate(parts)


def loss_and_slope(theta: Array, widths: Sequence[int], batch: Minibatch) -> tuple[float, Array]:
    loss, by_w, by_b = gradients(*layers(theta, widths), batch)
    return loss, vector(by_w, by_b)


def sgd(
    theta: Array, widths: Sequence[int], batches: list[Minibatch], rate: float
) -> tuple[Array, float]:
    """Return the trained vector, and the mean loss of its steps."""
    total = 0.0
    for batch in batches:
        loss, slope = loss_and_slope(theta, widths, batch)
        theta, total = theta - rate * slope, total + loss
    return theta, total / len(batches)


def attention(models: list[Array], alpha: float, sigma: float) -> Array:
    """Return FedAMP's xi [K, K], A'(x) = exp(-x / sigma) / sigma."""
    count = len(models)
    xi = np.zeros((count, count))
    for i, j in itertools.product(range(count), repeat=2):
        if i != j:
            x = float(np.sum((models[i] - models[j]) ** 2))
            xi[i, j] = alpha * np.exp(-x / sigma) / sigma
    for i in range(count):
        xi[i, i] = 1.0 - xi[i].sum()
    return xi


def cosine_attention(models: list[Array], sigma: float, own: float) -> Array:
    """Return HeurFedAMP's xi [K, K]."""
    count = len(models)
    xi = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            if i != j:
                norms = np.linalg.norm(models[i]) * np.linalg.norm(models[j])
                xi[i, j] = np.exp(sigma * float(models[i] @ models[j]) / norms)
        xi[i] *= (1.0 - own) / xi[i].sum()
        xi[i, i] = own
    return xi


def fedamp_device(
    w: Array,
    u: Array,
    widths: Sequence[int],
    batches: list[Minibatch],
    rate: float,
    penalty: float,
    steps: int,
) -> tuple[Array, float]:
    """Return a device's model, and the mean loss at the first gradient of each minibatch."""
    total = 0.0
    for batch in batches:
        for step in range(steps):
            loss, slope = loss_and_slope(w, widths, batch)
            total += loss if step == 0 else 0.0
            w = w - rate * (slope + penalty * (w - u))
    return w, total / len(batches)


def fomo_mix(
    base: Array, candidates: list[Array], widths: Sequence[int], validation: Minibatch
) -> tuple[Array, Array]:
    """Return the mixture, and the gain of each candidate."""
    least, _ = loss_and_slope(base, widths, validation)
    gains = np.zeros(len(candidates))
    for n, theta in enumerate(candidates):
        distance = np.linalg.norm(theta - base)
        if distance > 0:
            gains[n] = (least - loss_and_slope(theta, widths, validation)[0]) / distance
    positive = np.maximum(gains, 0.0)
    mixed = base.copy()
    if positive.sum() > 0:
        for theta, weight in zip(candidates, positive / positive.sum(), strict=True):
            mixed = mixed + weight * (theta - base)
    return mixed, gains


@dataclass
class Told:
    """Holds what a device of FedPAC tells: its extractor and head (vectors), h [C, d], V, centroids
    [C, d], samples of each class [C]."""

    body: Array
    head: Array
    h: Array
    v: float
    centroid: Array
    count: Array


def features(body: Array, widths: Sequence[int], x: Array) -> list[Array]:
    """Return what each layer of the extractor sees of one sample, and last the features."""
    seen = [x]
    weights, biases = layers(body, widths[:-1])
    for w, b in zip(weights, biases, strict=True):
        seen.append(np.maximum(seen[-1] @ w + b, 0.0))
    return seen


def split(theta: Array, widths: Sequence[int]) -> tuple[Array, Array]:
    """Split a vector into extractor and head."""
    size = widths[-2] * widths[-1] + widths[-1]
    return theta[:-size], theta[-size:]


def means(body: Array, widths: Sequence[int], data: Minibatch, classes: int) -> Array:
    """Return mean features of each class [C, d]."""
    out = np.zeros((classes, widths[-2]))
    for c in range(classes):
        own = [features(body, widths, x)[-1] for x, y in zip(data.x, data.y, strict=True) if y == c]
        if own:
            out[c] = np.mean(own, axis=0)
    return out


def pac_device(
    body: Array,
    head: Array,
    centroid: list[Array | None],
    widths: Sequence[int],
    data: Minibatch,
    head_batches: list[Minibatch],
    batches: list[Minibatch],
    rate: float,
    head_rate: float,
    penalty: float,
) -> tuple[Told, float]:
    """Do a device's round. data: all its samples, no padding. centroid: None of an unknown
    class."""
    classes, n = widths[-1], len(data.y)
    count = np.array([(data.y == c).sum() for c in range(classes)], dtype=float)
    h = count[:, None] / n * means(body, widths, data, classes)
    square = np.mean([np.sum(features(body, widths, x)[-1] ** 2) for x in data.x])
    v = (square - np.sum(h**2)) / n

    for batch in head_batches:
        inputs = np.stack([features(body, widths, x)[-1] for x in batch.x])
        slope = loss_and_slope(head, widths[-2:], Minibatch(inputs, batch.y, batch.weight))[1]
        head = head - head_rate * slope
    total = 0.0
    (last,), (bias,) = layers(head, widths[-2:])
    for batch in batches:
        weights, biases = layers(body, widths[:-1])
        by_w, by_b = [np.zeros_like(w) for w in weights], [np.zeros_like(b) for b in biases]
        for x, y, share in zip(batch.x, batch.y, batch.weight, strict=True):
            seen = features(body, widths, x)
            scores = seen[-1] @ last + bias
            p = np.exp(scores - scores.max())
            p /= p.sum()
            total -= share * np.log(p[y])
            p[y] -= 1.0
            g = last @ p
            c = centroid[y]
            if c is not None:
                g = g + 2.0 * penalty / len(c) * (seen[-1] - c)
            for i in reversed(range(len(weights))):
                g = g * (seen[i + 1] > 0)
                by_w[i] += share * np.outer(seen[i], g)
                by_b[i] += share * g
                g = weights[i] @ g
        body = body - rate * vector(by_w, by_b)
    told = Told(body, head, h, float(v), means(body, widths, data, classes), count)
    return told, total / len(batches)


def simplex_minimiser(q: Array) -> Array:
    """Return argmin x^T q x over the simplex: every support is tried."""
    size, best, least = len(q), np.zeros(len(q)), np.inf
    for support in itertools.product([False, True], repeat=size):
        place = np.flatnonzero(support)
        if not len(place):
            continue
        system = np.zeros((len(place) + 1, len(place) + 1))
        system[:-1, :-1] = 2 * q[np.ix_(place, place)]
        system[-1, :-1] = system[:-1, -1] = 1.0
        solved = np.linalg.lstsq(system, np.append(np.zeros(len(place)), 1.0), rcond=None)[0][:-1]
        if (solved < -1e-12).any() or abs(solved.sum() - 1.0) > 1e-9:
            continue
        x = np.zeros(size)
        x[place] = solved
        if x @ q @ x < least:
            best, least = x, float(x @ q @ x)
    return best


def head_weights(told: list[Told], i: int) -> Array:
    """Return a_i over the devices that told something."""
    count = len(told)
    q = np.zeros((count, count))
    for j, k in itertools.product(range(count), repeat=2):
        q[j, k] = np.sum((told[i].h - told[j].h) * (told[i].h - told[k].h))
        q[j, k] += told[j].v if j == k else 0.0
    return simplex_minimiser(q)


def pac_server(told: list[Told], centroid: list[Array | None]) -> list[Array | None]:
    """Return the next centroids."""
    out = list(centroid)
    for c in range(len(centroid)):
        samples = sum(one.count[c] for one in told)
        if samples:
            parts = [one.count[c] * one.centroid[c] for one in told]
            out[c] = np.asarray(np.sum(parts, axis=0) / samples)
    return out
