"""One fully connected layer: softmax or multinomial logistic regression (MCLR).

The problem is convex, so all parameters start at zero, or uniform in +-1/sqrt(inputs).
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from otafl.core import settings
from otafl.core.contracts import Tensors
from otafl.models.base import Draw
from otafl.models.layered import LayeredModel, number_layers


class SoftmaxRegression(LayeredModel):
    """Softmax regression.

    The parameters are "weight0" and "bias0".

    Examples
    --------
    `scenarios/studies/majority_votes.yaml` trains it.
    """

    class Settings(settings.Settings):
        name: Literal["softmax_regression"] = "softmax_regression"
        start: Literal["zero", "uniform"] = "zero"
        """start of weights and biases: zero, or uniform in +-1/sqrt(inputs) as in PyTorch"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        sides = math.prod(input_shape), classes
        super().__init__(number_layers([sides]), bias_start=settings.start)

    def init(self, draw: Draw) -> Tensors:
        params = super().init(draw)
        if self.bias_start == "uniform":
            return params
        return {name: torch.zeros_like(block) for name, block in params.items()}
