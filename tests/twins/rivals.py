"""Computes methods for heterogeneous devices plainly, as their papers have them: one trial, loops
over devices and local steps, float64. Minibatches are arguments. A model is a list of arrays, all
weights and then all biases; `shares` are the devices' numbers of samples over those of everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from twins.network import Array, Minibatch, gradients

Params = list[Array]
Gradient = Callable[[Params, Minibatch], tuple[float, Params]]


def gradient(params: Params, batch: Minibatch) -> tuple[float, Params]:
    """Return loss and gradient of the ReLU network."""
    layers = len(params) // 2
    loss, by_weight, by_bias = gradients(params[:layers], params[layers:], batch)
    return loss, by_weight + by_bias


def plus(one: Params, other: Params, factor: float = 1.0) -> Params:
    return [a + factor * b for a, b in zip(one, other, strict=True)]


def mean(all_params: Sequence[Params], shares: Sequence[float]) -> Params:
    """Take the mean under the shares, made to sum to one."""
    total = [0.0 * a for a in all_params[0]]
    for params, share in zip(all_params, shares, strict=True):
        total = plus(total, params, share / sum(shares))
    return total


def sgd(
    params: Params, batches: Sequence[Minibatch], rate: float, by: Gradient = gradient
) -> tuple[Params, float]:
    """Return the model after a step on each minibatch, and its mean loss before them."""
    losses = []
    for batch in batches:
        loss, along = by(params, batch)
        params = plus(params, along, -rate)
        losses.append(loss)
    return params, float(np.mean(losses))


def fedavg(
    server: Params, batches: list[list[Minibatch]], shares: list[float], rate: float
) -> tuple[Params, list[float]]:
    """Return the mean of the devices' models, and their mean losses (McMahan et al. 2017, Algorithm
    1)."""
    trained = [sgd(server, own, rate) for own in batches]
    return mean([w for w, _ in trained], shares), [loss for _, loss in trained]


def prox_sgd(
    server: Params, batches: Sequence[Minibatch], rate: float, mu: float
) -> tuple[Params, float]:
    """Return the model after steps on f + mu/2 |w - server|^2, and the mean loss f before them."""
    w, total = server, 0.0
    for batch in batches:
        loss, along = gradient(w, batch)
        total += loss
        w = plus(w, plus(along, plus(w, server, -1.0), mu), -rate)
    return w, total / len(batches)


def fedprox(
    server: Params, batches: list[list[Minibatch]], shares: list[float], rate: float, mu: float
) -> tuple[Params, list[float]]:
    """Return the mean of the devices' models, and their mean losses (Li et al. 2020, Algorithm
    2)."""
    trained = [prox_sgd(server, own, rate, mu) for own in batches]
    return mean([w for w, _ in trained], shares), [loss for _, loss in trained]


def scaffold(
    x: Params,
    c: Params,
    controls: list[Params],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
    server_rate: float,
) -> tuple[Params, Params, list[Params], list[float]]:
    """Return x, c, the participants' control variates and losses after a round (Karimireddy et al.
    2020, Algorithm 1, lines 4 to 17, option II). For equal devices sum(shares) is |S| / N."""
    dy, dc, new, losses = [], [], [], []
    for c_i, own in zip(controls, batches, strict=True):
        y, total = x, 0.0
        for batch in own:
            loss, g = gradient(y, batch)
            total += loss
            y = plus(y, plus(plus(g, c), c_i, -1.0), -rate)
        steps = len(own)
        c_new = plus(plus(c_i, c, -1.0), plus(x, y, -1.0), 1.0 / (steps * rate))
        dy.append(plus(y, x, -1.0))
        dc.append(plus(c_new, c_i, -1.0))
        new.append(c_new)
        losses.append(total / steps)
    x = plus(x, mean(dy, shares), server_rate)
    c = plus(c, mean(dc, shares), sum(shares))
    return x, c, new, losses


def ditto(
    server: Params,
    personal: list[Params],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
    personal_rate: float,
    penalty: float,
) -> tuple[Params, list[Params], list[float]]:
    """Return the averaged model, the personal ones, losses (Li et al. 2021, Algorithm 1)."""
    averaged, losses = fedavg(server, batches, shares, rate)
    new = []
    for v, own in zip(personal, batches, strict=True):
        for batch in own:
            pull = plus(v, server, -1.0)
            v = plus(v, plus(gradient(v, batch)[1], pull, penalty), -personal_rate)
        new.append(v)
    return averaged, new, losses


def apfl(
    server: Params,
    personal: list[Params],
    alphas: list[float],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
    personal_rate: float,
    adaptive: bool,
) -> tuple[Params, list[Params], list[float], list[float]]:
    """Return the averaged model, the devices' v and alpha, losses (Deng et al. 2020, Algorithm
    1)."""
    models, new, new_alphas, losses = [], [], [], []
    for v, alpha, own in zip(personal, alphas, batches, strict=True):
        w, total = server, 0.0
        for step, batch in enumerate(own):
            mixed = plus([alpha * a for a in v], w, 1.0 - alpha)
            at_mixed = gradient(mixed, batch)[1]
            loss, at_w = gradient(w, batch)
            total += loss
            along = [alpha * g for g in at_mixed]  # by v, of which the mixture has alpha
            apart = plus(v, w, -1.0)
            if adaptive and step == 0:
                slope = sum(float((a * g).sum()) for a, g in zip(apart, at_mixed, strict=True))
                alpha = min(1.0, max(0.0, alpha - personal_rate * slope))
            v = plus(v, along, -personal_rate)
            w = plus(w, at_w, -rate)
        models.append(w)
        new.append(v)
        new_alphas.append(alpha)
        losses.append(total / len(own))
    return mean(models, shares), new, new_alphas, losses


def fedrep(
    body: dict[int, Array],
    heads: list[dict[int, Array]],
    head_batches: list[list[Minibatch]],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
    head_rate: float,
) -> tuple[dict[int, Array], list[dict[int, Array]], list[float]]:
    """Return the averaged body, the heads, losses of the body's steps (Collins et al. 2021,
    Algorithm 1). Body and head: place in the list of the whole model -> array."""
    bodies, new, losses = [], [], []
    for head, for_head, for_body in zip(heads, head_batches, batches, strict=True):
        for batch in for_head:
            along = gradient(_whole(body, head), batch)[1]
            head = {i: a - head_rate * along[i] for i, a in head.items()}
        phi, total = body, 0.0
        for batch in for_body:
            loss, along = gradient(_whole(phi, head), batch)
            phi = {i: a - rate * along[i] for i, a in phi.items()}
            total += loss
        bodies.append(phi)
        new.append(head)
        losses.append(total / len(for_body))
    averaged = mean([list(phi.values()) for phi in bodies], shares)
    return dict(zip(body, averaged, strict=True)), new, losses


def _whole(body: dict[int, Array], head: dict[int, Array]) -> Params:
    both = body | head
    return [both[i] for i in range(len(both))]


def fedbn(
    server: Params,
    kept: Sequence[int],
    personal: list[Params],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
) -> tuple[Params, list[Params], list[float]]:
    """Return the averaged model, in which the arrays at the places `kept` are left as they were,
    the devices' arrays of these places, losses (Li et al. 2021, FedBN, Algorithm 1)."""
    models, new, losses = [], [], []
    for own_norm, own in zip(personal, batches, strict=True):
        params = list(server)
        for place, array in zip(kept, own_norm, strict=True):
            params[place] = array
        params, loss = sgd(params, own, rate, normed_gradient)
        models.append(params)
        new.append([params[place] for place in kept])
        losses.append(loss)
    averaged = mean(models, shares)
    for place in kept:
        averaged[place] = server[place]
    return averaged, new, losses


def normed_gradient(params: Params, batch: Minibatch) -> tuple[float, Params]:
    """Return loss and gradient of a network as torch stores it: linear (weight, bias), layer norm
    (scale, shift), ReLU, linear (weight, bias)."""
    w1, b1, scale, shift, w2, b2 = params
    loss, by = 0.0, [0.0 * a for a in params]
    for x, y, share in zip(batch.x, batch.y, batch.weight, strict=True):
        z = w1 @ x + b1
        root = np.sqrt(z.var() + 1e-5)
        normal = (z - z.mean()) / root
        hidden = np.maximum(scale * normal + shift, 0.0)
        scores = w2 @ hidden + b2
        log_p = scores - np.log(np.exp(scores).sum())
        loss -= share * log_p[y]
        g = share * (np.exp(log_p) - (np.arange(len(log_p)) == y))
        g_hidden = (w2.T @ g) * (hidden > 0)
        g_normal = g_hidden * scale
        g_z = (g_normal - g_normal.mean() - normal * (g_normal * normal).mean()) / root
        new = [np.outer(g_z, x), g_z, g_hidden * normal, g_hidden, np.outer(g, hidden), g]
        by = plus(by, new)
    return float(loss), by


def fedem(
    models: list[Params],
    pis: list[Array],
    everything: list[Minibatch],
    batches: list[list[Minibatch]],
    shares: list[float],
    rate: float,
) -> tuple[list[Params], list[Array], list[float]]:
    """Return the averaged components, the devices' pi, and the sum over components of the mean
    weighted loss (Marfoq et al. 2021, Algorithm 1). everything: all samples of each device."""
    trained: list[list[Params]] = []
    new_pis, losses = [], []
    for pi, data, own in zip(pis, everything, batches, strict=True):
        q = np.array([_posterior(models, pi, x, y) for x, y in zip(data.x, data.y, strict=True)])
        new_pis.append(q.mean(0))
        new, total = [], 0.0
        for m, params in enumerate(models):
            for batch in own:
                place = [np.flatnonzero((data.x == x).all(1))[0] for x in batch.x]
                weighted = Minibatch(batch.x, batch.y, batch.weight * q[place, m])
                loss, along = gradient(params, weighted)
                params = plus(params, along, -rate)
                total += loss / len(own)
            new.append(params)
        trained.append(new)
        losses.append(total)
    averaged = [mean([one[m] for one in trained], shares) for m in range(len(models))]
    return averaged, new_pis, losses


def _posterior(models: list[Params], pi: Array, x: Array, y: np.int64) -> Array:
    """Return whose sample this is, [M]."""
    one = Minibatch(x[None], np.array([y]), np.ones(1))
    likelihood = np.array([np.exp(-gradient(params, one)[0]) for params in models])
    return pi * likelihood / (pi * likelihood).sum()
