"""Layers with a weight in CP form, contracted without forming the weight (TDPFed).

Equations are those of Wang, Jin, Liu, Zong, Shao, Li, (5)-(6), (9)-(12). Factors are [n, R, I_n]
(see `factorised.cp`), in the order of the weight's modes in memory: inputs, outputs of a dense
layer (the paper's A2, A1); kernel height, kernel width, input and output channels of a convolution
(the paper's A1, ..., A4).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from otafl.models.linear_layer import Layer, Window


def get_modes(layer: Layer) -> tuple[int, ...]:
    """Return the modes I_1, ..., I_N of a layer's weight, 2 if dense, 4 of a convolution."""
    if layer.window is None:
        return layer.inputs, layer.outputs
    return layer.window.kernel, layer.window.kernel, layer.window.channels, layer.outputs


class CpMap:
    """Weight of a dense layer in CP form (`models.linear_layer.LinearMap`), eq. (6).

    It takes R (M + N) multiplications a sample instead of M N.

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_n]
        Factors of inputs and outputs.
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self._inputs, self._outputs = factors

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(len(self._inputs), -1, -1)
        return torch.bmm(torch.bmm(x, self._inputs.mT), self._outputs)

    def backward(self, g: Tensor) -> Tensor:
        return torch.bmm(torch.bmm(g, self._outputs.mT), self._inputs)


class CpKernel:
    """Kernels of convolutions in CP form (`models.linear_layer.KernelMap`), eqs. (9)-(12).

    Zero padding and strides split exactly, because only the last stage has a bias.

    Parameters
    ----------
    factors : sequence of Tensor [n, R, I_n]
        Factors of height, width, input and output channels.
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self._factors = factors

    def convolve(self, image: Tensor, bias: Tensor, window: Window) -> Tensor:
        high, wide, channels, outputs = self._factors
        n, rank, k = high.shape
        step, pad, all_ranks = window.stride, window.padding, n * rank
        groups = image.shape[1] // window.channels
        y = functional.conv2d(image, channels.reshape(all_ranks, -1, 1, 1), groups=groups)  # (9)
        y = functional.conv2d(  # eq. (10)
            y, wide.reshape(all_ranks, 1, 1, k), None, (1, step), (0, pad), 1, all_ranks
        )
        y = functional.conv2d(  # eq. (11)
            y, high.reshape(all_ranks, 1, k, 1), None, (step, 1), (pad, 0), 1, all_ranks
        )
        last = outputs.mT.reshape(-1, rank, 1, 1)
        return functional.conv2d(y, last, bias.flatten(), groups=n)  # eq. (12)


def make_map(factors: Sequence[Tensor]) -> CpMap | CpKernel:
    """Make the weight of factors [n, R, I_n], two of a dense layer or four of a convolution."""
    return CpMap(factors) if len(factors) == 2 else CpKernel(factors)
