"""Layers with a weight in CP form, contracted without forming the weight (TDPFed).

Equations are those of Wang, Jin, Liu, Zong, Shao, Li, (5)-(6), (9)-(12). Factors are [n, R, I_n]
(see `factorised.cp`), in the order of the weight's modes in memory: inputs, outputs of a dense
layer (the paper's A2, A1); kernel height, kernel width, input and output channels of a convolution
(the paper's A1, ..., A4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from otafl.models import convolution
from otafl.models.geometry import Window
from otafl.models.layered import PATCHES_AT_ONCE, LayeredModel
from otafl.models.linear_layer import Layer


def get_modes(layer: Layer) -> tuple[int, ...]:
    """Return the modes I_1, ..., I_N of a layer's weight, 2 if dense, 4 of a convolution."""
    if layer.window is None:
        return layer.inputs, layer.outputs
    return layer.window.kernel, layer.window.kernel, layer.window.channels, layer.outputs


class CpMap:
    """Weight of a dense layer in CP form (`models.linear_map.LinearMap`), eq. (6).

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


def convolve(image: Tensor, factors: Sequence[Tensor], bias: Tensor, window: Window) -> Tensor:
    """Convolve the images of n rows with weights in CP form, eqs. (9)-(12).

    Zero padding and strides split exactly, because only the last stage has a bias.

    Parameters
    ----------
    image : Tensor [B, n C, H, W], or [B, C, H, W]
        Images of each row, or of all rows.
    factors : sequence of Tensor [n, R, I_n]
        Factors of height, width, input and output channels.
    bias : Tensor [n, T]
        Biases.
    window : Window
        Sizes.

    Returns
    -------
    Tensor [B, n T, H', W']
        Output.
    """
    high, wide, channels, outputs = factors
    n, rank, k = high.shape
    step, pad, all_ranks = window.stride, window.padding, n * rank
    groups = image.shape[1] // window.channels
    y = functional.conv2d(image, channels.reshape(all_ranks, -1, 1, 1), groups=groups)  # eq. (9)
    y = functional.conv2d(  # eq. (10)
        y, wide.reshape(all_ranks, 1, 1, k), None, (1, step), (0, pad), 1, all_ranks
    )
    y = functional.conv2d(  # eq. (11)
        y, high.reshape(all_ranks, 1, k, 1), None, (step, 1), (pad, 0), 1, all_ranks
    )
    last = outputs.mT.reshape(-1, rank, 1, 1)
    return functional.conv2d(y, last, bias.flatten(), groups=n)  # eq. (12)


def compute_logits(model: LayeredModel, params: Mapping[str, Any], x: Tensor) -> Tensor:
    """Compute class scores from factors and biases.

    Parameters
    ----------
    model : LayeredModel
        Model.
    params : mapping of str to list of Tensor, or Tensor
        Factors and biases by the names of the model's weights and biases.
    x : Tensor [n or 1, B, *input]
        Samples.

    Returns
    -------
    Tensor [n, B, classes]
        Scores.
    """
    front = [layer for layer in model.layers if layer.window is not None]
    if front:
        n = len(params[front[0].bias])
        largest = max(one.positions * max(get_modes(one)[2:]) for one in front)
        largest = max(largest, *(one.positions * params[one.weight][0].shape[1] for one in front))
        parts = x.split(max(1, PATCHES_AT_ONCE // (n * largest)), 1)
        seen = [_compute_features(front, params, part) for part in parts]
        x = seen[0] if len(seen) == 1 else torch.cat(seen, 1)
    x = x.flatten(2)
    *hidden, last = model.layers[len(front) :]
    for layer in hidden:
        y = CpMap(params[layer.weight]).forward(x)
        x = y.add_(params[layer.bias][:, None]).relu_()
    return CpMap(params[last.weight]).forward(x).add_(params[last.bias][:, None])


def _compute_features(front: Sequence[Layer], params: Mapping[str, Any], x: Tensor) -> Tensor:
    """Compute the inputs [n, B, M] of the fully connected layers."""
    assert front[0].window is not None
    image = convolution.to_grouped_images(x, front[0].window)
    for layer in front:
        assert layer.window is not None
        z = convolve(image, params[layer.weight], params[layer.bias], layer.window)
        image = functional.relu(convolution.pool(z, layer.window.pool)[0])
    return convolution.to_grouped_features(image, len(params[front[0].bias]))
