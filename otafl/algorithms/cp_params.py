"""Name the blocks of a model whose weights are kept as CP factors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from otafl.algorithms import adam
from otafl.core.contracts import Tensors
from otafl.factorised import cp, cp_aggregation
from otafl.models import cp_layers
from otafl.models.base import Shapes, flatten
from otafl.models.layered import LayeredModel


class CpParams:
    """The blocks are "<weight>.A<n>" [.., R, I_n] and "<bias>" [.., outputs] of each layer.

    layers, ranks: of the model. modes: I_1 .. I_N of each layer. shapes: of the blocks. weights: of
    the dense weights.
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
        """Return the factors and biases among these blocks."""
        return {name: tensors[name] for name in self.shapes}

    def list_names(self, weight: str) -> list[str]:
        """List the blocks of a weight."""
        return self._names[weight]

    def get_factors(self, tensors: Tensors, weight: str) -> list[Tensor]:
        """Return the factors of a weight."""
        return [tensors[name] for name in self._names[weight]]

    def name_factors(self, weight: str, factors: Sequence[Tensor]) -> Tensors:
        """Return the factors of a weight as blocks."""
        return dict(zip(self._names[weight], factors, strict=True))

    def to_dense(self, tensors: Tensors, out: Tensors | None = None) -> Tensors:
        """Return the parameters [[A]], b of the dense model; biases are the same tensors. out:
        memory for the weights."""
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
        """Count the numbers in the factors of each layer."""
        return [
            cp.count_coordinates(modes, rank)
            for modes, rank in zip(self.modes, self.ranks, strict=True)
        ]

    @property
    def num_coordinates(self) -> int:
        """Count the numbers in all blocks."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def count_step_flops(self, joint: bool) -> float:
        """Count the operations of an Adam step on all blocks: of factors jointly, or of each from a
        gradient of its own."""
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
        """Count the operations of the coordinates of what all layers have changed by."""
        both = zip(self.modes, self.ranks, strict=True)
        return sum(cp_aggregation.count_coordinates_flops(modes, rank) for modes, rank in both)
