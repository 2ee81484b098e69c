"""Softmax (multinomial logistic) regression, the MCLR of the personalised-learning papers."""

from __future__ import annotations

import torch

from otafl.core.contracts import Blocks
from otafl.models.base import Draw, Layer, LayeredModel, uniform_start
from otafl.models.config import SoftmaxRegressionConfig


class SoftmaxRegression(LayeredModel):
    """One linear layer, started at zero (the problem is convex), or uniform in +-1/sqrt(inputs)."""

    def __init__(
        self, config: SoftmaxRegressionConfig, input_shape: tuple[int, ...], classes: int
    ) -> None:
        super().__init__((Layer("weight0", "bias0", torch.Size(input_shape).numel(), classes),))
        self._start = config.start

    def init(self, draw: Draw) -> Blocks:
        if self._start == "uniform":
            return uniform_start(self.layers, draw, "uniform")
        (layer,) = self.layers
        weight = torch.zeros_like(draw(layer.weight, (layer.inputs, layer.outputs)))
        return {layer.weight: weight, layer.bias: weight.new_zeros(len(weight), layer.outputs)}
