"""Names and shapes of a model's parameters as CP factors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from otafl.algorithms.low_rank import adam
from otafl.core.contracts import Tensors
from otafl.factorised import cp, cp_aggregation
from otafl.models import cp_layers
from otafl.models.base import Shapes, flatten
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
        self.modes = [cp_layers.get_modes(layer) for layer in model.layers]
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
        total = adam.STEP * self.num_coordinates + sum(layer.outputs for layer in self.layers)
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
