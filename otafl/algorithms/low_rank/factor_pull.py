"""Adam steps that pull CP factors and biases to the parameters of dense models (TDPFed).

The objective of each row is lambda/2 (|theta - [[A]]|^2 + |theta_b - b|^2). A tile of few rows
takes all its steps before the next one, so that its tensors stay in the processor's cache.

References
----------
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    eqs. (19), (25).
"""

from __future__ import annotations

import itertools
import math

from torch import Tensor

from otafl.algorithms.low_rank.adam import PenaltyAdam
from otafl.algorithms.low_rank.cp_params import CpParams
from otafl.core.contracts import Tensors
from otafl.factorised import cp
from otafl.models.base import unflatten

TILE_BYTES = 3 << 20
"""Bytes of the tensors and residuals of a tile."""


class FactorPull:
    """Optimiser of factors and biases, in place.

    Parameters
    ----------
    names : CpParams
        Names of the factors and biases.
    local : Tensor [n, Q]
        Factors and biases side by side.
    rate : Tensor [n]
        Step size eta.
    penalty : Tensor [n]
        Weight lambda.
    """

    def __init__(self, names: CpParams, local: Tensor, rate: Tensor, penalty: Tensor) -> None:
        tiles = _split_tiles(names, rate)
        self._tiles = [_Tile(names, local[rows], rate[rows], penalty[rows]) for rows in tiles]
        self._slices = tiles
        # tiles take their steps one after the other, in the same memory
        most = len(rate[tiles[0]])
        self._residuals = {n: rate.new_empty(most, *shape) for n, shape in names.weights.items()}

    def take_steps_(self, target: Tensors, steps: int, joint: bool) -> None:
        """Take Adam steps towards dense parameters.

        Parameters
        ----------
        target : dict of str to Tensor [n, *shape]
            Dense parameters theta.
        steps : int
            Number of steps.
        joint : bool
            Whether all factors move together, or one after the other.
        """
        for rows, tile in zip(self._slices, self._tiles, strict=True):
            there = {name: block[rows] for name, block in target.items()}
            count = len(tile.rows)
            memory = {name: block[:count] for name, block in self._residuals.items()}
            step_ = tile.take_joint_step_ if joint else tile.take_alternating_step_
            for _ in range(steps):
                step_(there, memory)


class _Tile:
    """Rows [m, Q] that take their steps together."""

    def __init__(self, names: CpParams, rows: Tensor, rate: Tensor, penalty: Tensor) -> None:
        self.rows, self._names = rows, names
        self._adam = PenaltyAdam(rows, rate, penalty)
        self._tensors = unflatten(rows, names.shapes)
        self._factors = {name: names.get_factors(self._tensors, name) for name in names.weights}
        sizes = [math.prod(shape) for shape in names.shapes.values()]
        stops = itertools.accumulate(sizes)
        self._columns = {
            name: slice(stop - size, stop)
            for name, size, stop in zip(names.shapes, sizes, stops, strict=True)
        }

    def take_joint_step_(self, target: Tensors, memory: Tensors) -> None:
        """Take a step of all tensors: factors by (25), biases by b - theta_b.

        `memory` is for the residuals.
        """
        by: list[Tensor] = []
        for layer in self._names.layers:
            name = layer.weight
            by += cp.compute_factor_gradients(target[name], self._factors[name], out=memory[name])
            by.append(self._tensors[layer.bias] - target[layer.bias])
        self._adam.step_(*(one.flatten(1) for one in by))

    def take_alternating_step_(self, target: Tensors, memory: Tensors) -> None:
        """Take one step of each factor in turn, at the new values of the factors before it.

        Each factor needs a residual of its own, N times the work of a joint step for N factors.
        """
        self._adam.advance()
        for layer in self._names.layers:
            weight, bias = layer.weight, layer.bias
            for mode, name in enumerate(self._names.list_names(weight)):
                by = cp.compute_factor_gradients(
                    target[weight], self._factors[weight], out=memory[weight]
                )
                self._adam.move_(self._columns[name], by[mode].flatten(1))
            self._adam.move_(self._columns[bias], self._tensors[bias] - target[bias])


def _split_tiles(names: CpParams, rows: Tensor) -> list[slice]:
    """Split rows [n] into slices whose tensors fit the cache of a processor."""
    count = len(rows)
    if rows.device.type == "cpu":
        numbers = sum(math.prod(shape) for shape in names.weights.values())
        count = max(1, TILE_BYTES // (2 * numbers * rows.element_size()))
    return [slice(start, start + count) for start in range(0, len(rows), count)]
