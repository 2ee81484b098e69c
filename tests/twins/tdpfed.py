"""A plain twin of TDPFed (Wang, Jin, Liu, Zong, Shao, Li, "Tensor Decomposition based Personalized
Federated Learning", Algorithm 1): loops over devices, local rounds, steps, layers and modes, one
trial, float64. Weights are tensors of any order, their factors as the paper has them, [I_n, R];
the loss and its gradient by the dense weights are an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from twins.network import Array, Minibatch

Loss = Callable[[list[Array], list[Array], Minibatch], tuple[float, list[Array], list[Array]]]
"""(weights, biases, minibatch) -> loss, gradients by weights and by biases."""


@dataclass
class Local:
    """factors[layer][mode] [I_n, R]; theta and its biases dense."""

    factors: list[list[Array]]
    biases: list[Array]
    theta: list[Array]
    theta_biases: list[Array]
    loss: float


def tensor(factors: list[Array]) -> Array:
    """[[A]], entry by entry over the components."""
    out = np.zeros([len(f) for f in factors])
    for r in range(factors[0].shape[1]):
        term = np.ones(())
        for f in factors:
            term = np.multiply.outer(term, f[:, r])
        out += term
    return out


def khatri_rao(factors: list[Array]) -> Array:
    """Column r is kron(.., .., ..) of the columns r."""
    columns = []
    for r in range(factors[0].shape[1]):
        column = np.ones(1)
        for f in factors:
            column = np.kron(column, f[:, r])
        columns.append(column)
    return np.stack(columns, 1)


def unfolded(theta: Array, mode: int) -> Array:
    """theta_(n), the last index running fastest."""
    return np.moveaxis(theta, mode, 0).reshape(theta.shape[mode], -1)


def gradient(theta: Array, factors: list[Array], mode: int, penalty: float) -> Array:
    """Eq. (25): lambda (-theta_(n) H_n + A^(n) V_n), with the row-major unfolding."""
    others = [f for m, f in enumerate(factors) if m != mode]
    v = np.ones((factors[0].shape[1],) * 2)
    for f in others:  # eq. (18)
        v = v * (f.T @ f)
    return penalty * (-unfolded(theta, mode) @ khatri_rao(others) + factors[mode] @ v)


def same_gradient(theta: Array, factors: list[Array], mode: int, penalty: float) -> Array:
    """Eq. (25) with A^(n) V_n = [[A]]_(n) H_n. It vanishes where theta is [[A]] (a hidden unit that
    no sample has woken); of (25) rounding remains there, and Adam would make steps of it."""
    others = [f for m, f in enumerate(factors) if m != mode]
    return penalty * unfolded(tensor(factors) - theta, mode) @ khatri_rao(others)


class Adam:
    """Kingma and Ba 2015, Algorithm 1, for one array."""

    def __init__(self, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.m: Array = np.zeros(())
        self.v: Array = np.zeros(())

    def step(self, at: Array, g: Array) -> Array:
        self.count += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        m = self.m / (1 - 0.9**self.count)
        v = self.v / (1 - 0.999**self.count)
        return at - self.rate * m / (np.sqrt(v) + 1e-8)


def nesterov(
    theta: list[Array],
    centre: list[Array],
    slope: Callable[[list[Array]], list[Array]],
    rate: float,
    penalty: float,
    steps: int,
) -> list[Array]:
    """Steps on eq. (15), the momentum cleared at the start; the iterate, not the point ahead."""
    before = theta
    for j in range(1, steps + 1):
        m = (j - 1) / (j + 2)
        ahead = [a + m * (a - b) for a, b in zip(theta, before, strict=True)]
        before = theta
        theta = [
            v - rate * (g + penalty * (v - c))
            for v, g, c in zip(ahead, slope(ahead), centre, strict=True)
        ]
    return theta


def client_update(
    factors: list[list[Array]],
    biases: list[Array],
    start: list[Array] | None,
    batches: list[Minibatch],
    loss: Loss,
    rates: dict[str, float],
    steps: tuple[int, int],
    alternate: bool = False,
) -> Local:
    """Algorithm 1, lines 6 to 11. rates: penalty, personal_learning_rate, factor_learning_rate.
    steps: s, s'. start: theta's weights, [[A]] if None."""
    factors, biases = [list(f) for f in factors], list(biases)
    layers = range(len(biases))
    theta = [tensor(f) for f in factors] if start is None else list(start)
    theta_biases = list(biases)
    penalty = rates["penalty"]
    adam = [[Adam(rates["factor_learning_rate"]) for _ in f] for f in factors]
    adam_bias = [Adam(rates["factor_learning_rate"]) for _ in biases]
    total = 0.0
    for batch in batches:
        total += loss(theta, theta_biases, batch)[0]

        def slope(at: list[Array], of: Minibatch = batch) -> list[Array]:
            _, by_weight, by_bias = loss(at[: len(layers)], at[len(layers) :], of)
            return by_weight + by_bias

        centre = [tensor(f) for f in factors] + biases
        rate = rates["personal_learning_rate"]
        moved = nesterov(theta + theta_biases, centre, slope, rate, penalty, steps[0])
        theta, theta_biases = moved[: len(layers)], moved[len(layers) :]
        for _ in range(steps[1]):
            for i in layers:
                known = list(factors[i])
                for mode in range(len(known)):
                    seen = factors[i] if alternate else known
                    g = same_gradient(theta[i], seen, mode, penalty)
                    factors[i][mode] = adam[i][mode].step(factors[i][mode], g)
                pull = penalty * (biases[i] - theta_biases[i])
                biases[i] = adam_bias[i].step(biases[i], pull)
    return Local(factors, biases, theta, theta_biases, total / len(batches))


def afm(old: Array, each: Sequence[Array], weight: list[float], beta: float) -> Array:
    """Eq. (20), of one factor or bias."""
    mean = sum((w * a for w, a in zip(weight, each, strict=True)), np.zeros_like(old))
    return (1 - beta) * old + beta * mean


def act(old: list[Array], each: Sequence[list[Array]], weight: list[float], beta: float) -> Array:
    """Eq. (21) and the one after it: the server's new tensor, before (22)."""
    mean = sum((w * tensor(f) for w, f in zip(weight, each, strict=True)), np.zeros(()))
    out: Array = (1 - beta) * tensor(old) + beta * mean
    return out
