"""A plain twin of Split-Mix (Hong, Wang, Wang, Zhou 2022) with fully connected ReLU networks: one
trial, loops over devices, atoms and steps, float64. Orders of the queue and draws are arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from twins.heterofl import Device, Settings, train
from twins.network import Array

Atom = tuple[list[Array], list[Array]]
"""Weights and biases."""


@dataclass
class Queue:
    """All atoms in a shuffled order, again and again. orders: of each lap."""

    orders: list[list[int]]
    dealt: int = 0

    def next(self) -> int:
        order = self.orders[self.dealt // len(self.orders[0])]
        atom = order[self.dealt % len(order)]
        self.dealt += 1
        return atom


def choice(first: int, budget: int, draws: Array) -> list[int]:
    """The first atom and, of the others, those with the smallest draws [M]."""
    others = [atom for atom in np.argsort(draws).tolist() if atom != first]
    return [first, *others[: budget - 1]]


def one_round(
    atoms: list[Atom], devices: list[Device], chosen: list[list[int]], settings: Settings
) -> tuple[list[Atom], list[float]]:
    """The next atoms, and each device's loss: the mean over its atoms and steps."""
    layers = len(atoms[0][0])
    heard: list[list[tuple[Device, Atom]]] = [[] for _ in atoms]
    losses = []
    for device, own in zip(devices, chosen, strict=True):
        total = 0.0
        for index in own:
            w = [block.copy() for block in atoms[index][0]]
            b = [block.copy() for block in atoms[index][1]]
            total += train(w, b, device, settings)
            heard[index].append((device, (w, b)))
        losses.append(total / len(own))
    new = []
    for atom, came in zip(atoms, heard, strict=True):
        w, b = [block.copy() for block in atom[0]], [block.copy() for block in atom[1]]
        for i in range(layers if came else 0):
            for column in range(w[i].shape[1]):
                counted = [
                    trained
                    for device, trained in came
                    if i < layers - 1 or not settings.masked or device.present[column]
                ]
                if counted:
                    w[i][:, column] = np.mean([each[0][i][:, column] for each in counted], 0)
                    b[i][column] = np.mean([each[1][i][column] for each in counted])
        new.append((w, b))
    return new, losses
