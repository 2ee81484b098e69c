"""CP factors of a model's weights, and Adam steps that pull them to dense models (TDPFed).

The objective of each row is lambda/2 (|theta - [[A]]|^2 + |theta_b - b|^2).

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated Learning",
    eqs. (19), (25).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.core.adam import BETAS, EPSILON
from otafl.core.contracts import Tensors
from otafl.factorised import cp, cp_aggregation
from otafl.models.base import Shapes, flatten, unflatten
from otafl.models.layered import LayeredModel


class CpParams:
    """Tensors of a model whose weights are CP factors.

    The tensors are "WEIGHT.A1", "WEIGHT.A2", ... [.., R, I_n] and "BIAS" [.., outputs] of each
    layer.

    Parameters
    ----------
    model : LayeredModel
        Model whose weights are factorised.
    ranks : sequence of int
        CP rank R of each layer.

    Attributes
    ----------
    layers, ranks : tuple
        Layers of the model, and their ranks.
    modes : list of tuple of int
        Sizes I_1, ..., I_N of each layer's tensor.
    shapes : dict of str to tuple of int
        Shapes of the factors and biases.
    weights : dict of str to tuple of int
        Shapes of the dense weights.
    """

    def __init__(self, model: LayeredModel, ranks: Sequence[int]) -> None:
        self.layers, self.ranks = model.layers, tuple(ranks)
        self.modes = [layer.modes for layer in model.layers]
        self.shapes: Shapes = {}
        self.weights: Shapes = {}
        self._names: dict[str, list[str]] = {}
        for layer, modes, rank in zip(self.layers, self.modes, self.ranks, strict=True):
            self._names[layer.weight] = [f"{layer.weight}.A{n}" for n in range(1, len(modes) + 1)]
            for name, size in zip(self._names[layer.weight], modes, strict=True):
                self.shapes[name] = (rank, size)
            self.shapes[layer.bias] = (layer.outputs,)
            self.weights[layer.weight] = (layer.inputs, layer.outputs)

    def select(self, tensors: Tensors) -> Tensors:
        """Return the factors and biases among the tensors."""
        return {name: tensors[name] for name in self.shapes}

    def list_names(self, weight: str) -> list[str]:
        """List the names of the factors of a weight."""
        return self._names[weight]

    def get_factors(self, tensors: Tensors, weight: str) -> list[Tensor]:
        """Return the factors of a weight."""
        return [tensors[name] for name in self._names[weight]]

    def name_factors(self, weight: str, factors: Sequence[Tensor]) -> Tensors:
        """Return the factors of a weight by their names."""
        return dict(zip(self._names[weight], factors, strict=True))

    def to_dense(self, tensors: Tensors, out: Tensors | None = None) -> Tensors:
        """Return the parameters [[A]], b of the dense model.

        Parameters
        ----------
        tensors : dict of str to Tensor
            Factors and biases.
        out : dict of str to Tensor, optional
            Memory for the weights.

        Returns
        -------
        dict of str to Tensor
            Dense weights, and the same tensors of the biases.
        """
        dense: Tensors = {}
        for layer in self.layers:
            name, bias = layer.weight, layer.bias
            memory = None if out is None else out[name]
            dense[name] = cp.kruskal(self.get_factors(tensors, name), out=memory)
            dense[bias] = tensors[bias]
        return dense

    def flatten_dense(self, tensors: Tensors) -> Tensor:
        """Return [[A]] of all layers side by side, [.., P]."""
        return flatten({name: cp.kruskal(self.get_factors(tensors, name)) for name in self.weights})

    def count_coordinates(self) -> list[int]:
        """Count the coordinates of the factors of each layer."""
        return [
            cp.count_coordinates(modes, rank)
            for modes, rank in zip(self.modes, self.ranks, strict=True)
        ]

    @property
    def num_coordinates(self) -> int:
        """The number of coordinates of all factors and biases."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def count_step_flops(self, joint: bool) -> float:
        """Count the operations of an Adam step on all factors and biases.

        Parameters
        ----------
        joint : bool
            Whether one residual gives the gradients of all factors, or each factor needs its own.

        Returns
        -------
        float
            Operations.
        """
        total = ADAM_STEP * self.num_coordinates + sum(layer.outputs for layer in self.layers)
        for modes, rank in zip(self.modes, self.ranks, strict=True):
            if joint:
                total += cp.count_factor_gradients_flops(modes, rank)
            else:
                total += sum(
                    cp.count_factor_gradient_flops(modes, rank, n) for n in range(len(modes))
                )
        return total

    def count_dense_flops(self) -> float:
        """Count the operations of `to_dense`."""
        both = zip(self.modes, self.ranks, strict=True)
        return sum(cp.count_kruskal_flops(modes, rank) for modes, rank in both)

    def count_coordinates_flops(self) -> float:
        """Count the operations of the tangent coordinates of the changes of all layers."""
        both = zip(self.modes, self.ranks, strict=True)
        return sum(cp_aggregation.count_coordinates_flops(modes, rank) for modes, rank in both)


ADAM_STEP = 12.0
"""Operations per coordinate of a step of Adam.

First moment (3), second moment (4), its root (1), corrections for the start (2), quotient and
subtraction (2).
"""


class PenaltyAdam:
    r"""Adam on rows of numbers, in place, from gradients over the penalty's weight lambda.

    Parameters
    ----------
    rows : Tensor [n, Q]
        Numbers to optimise.
    rate : Tensor [n]
        Step size of each row.
    penalty : Tensor [n]
        Weight lambda of each row.

    Notes
    -----
    Without the factor lambda in the gradient, m and v lack the factors lambda and lambda^2. The
    step is the same if epsilon is divided by lambda:

    .. math::

        \frac{\lambda m}{\lambda \sqrt{v} + \epsilon} = \frac{m}{\sqrt{v} + \epsilon / \lambda}.

    So lambda matters only through epsilon and through the personal model.
    """

    def __init__(self, rows: Tensor, rate: Tensor, penalty: Tensor) -> None:
        self._rows, self._rate = rows, rate[:, None]
        self._epsilon = EPSILON / penalty[:, None]
        self._m, self._v = torch.zeros_like(rows), torch.zeros_like(rows)
        self._count = 0

    def advance(self) -> None:
        """Count a step, and compute the corrections for moments that start at zero."""
        self._count += 1
        first, second = (1.0 - beta**self._count for beta in BETAS)
        self._scale = first / second**0.5 / self._rate  # factor of sqrt(v) below m
        self._offset = first * self._epsilon / self._rate

    def move_(self, column_slice: slice, gradient: Tensor) -> None:
        """Move the selected columns along their gradient, within the step that was counted last."""
        m = self._m[:, column_slice].lerp_(gradient, 1.0 - BETAS[0])
        v = self._v[:, column_slice].mul_(BETAS[1])
        v.addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        under = v.sqrt()
        # addcmul is slow if two of its three operands are broadcast
        under.mul_(self._scale).add_(self._offset)
        self._rows[:, column_slice].addcdiv_(m, under, value=-1.0)


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
        self._names, self._adam = names, PenaltyAdam(local, rate, penalty)
        self._tensors = unflatten(local, names.shapes)
        self._factors = {name: names.get_factors(self._tensors, name) for name in names.weights}
        self._residuals = {
            n: local.new_empty(len(local), *shape) for n, shape in names.weights.items()
        }
        sizes = [math.prod(shape) for shape in names.shapes.values()]
        stops = itertools.accumulate(sizes)
        self._columns = {
            name: slice(stop - size, stop)
            for name, size, stop in zip(names.shapes, sizes, stops, strict=True)
        }

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
        for _ in range(steps):
            self._adam.advance()
            if not joint:
                # each factor in turn, at the new values of the factors before it; it needs a
                # residual of its own, N times the work of a joint step for N factors
                for layer in self._names.layers:
                    for mode, name in enumerate(self._names.list_names(layer.weight)):
                        own = self._compute_gradients(target, layer.weight)[mode]
                        self._adam.move_(self._columns[name], own.flatten(1))
                    bias = layer.bias
                    self._adam.move_(self._columns[bias], self._tensors[bias] - target[bias])
                continue
            by: list[Tensor] = []  # factors by (25), biases by b - theta_b
            for layer in self._names.layers:
                by += self._compute_gradients(target, layer.weight)
                by.append(self._tensors[layer.bias] - target[layer.bias])
            self._adam.move_(slice(None), torch.cat([one.flatten(1) for one in by], 1))

    def _compute_gradients(self, target: Tensors, weight: str) -> list[Tensor]:
        """Compute the gradients (25) by all factors of a weight."""
        residual = self._residuals[weight]
        return cp.compute_factor_gradients(target[weight], self._factors[weight], out=residual)
