"""One fully connected layer: softmax or multinomial logistic regression (MCLR).

The problem is convex, so all parameters start at zero, or uniform in +-1/sqrt(inputs).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from otafl.core.choices import declare_choice
from otafl.core.contracts import Tensors
from otafl.models.base import Draw, ModelSettings
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import BiasStart, number_layers


class SoftmaxRegression(LayeredModel):
    """Softmax regression.

    The parameters are "weight0" and "bias0".

    Examples
    --------
    `studies/published/majority_votes.yaml` trains it.
    """

    class Settings(ModelSettings):
        name: Literal["softmax_regression"] = "softmax_regression"
        start: Any = declare_choice(
            "start",
            "start of the weights: zero, uniform in +-1/sqrt(inputs), or from elsewhere",
            words=("zero", "uniform"),
        )

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        sides = math.prod(input_shape), classes
        own: BiasStart = "uniform" if settings.start == "uniform" else "zero"
        super().__init__(number_layers([sides]), bias_start=own)

    def init(self, draw: Draw) -> Tensors:
        params = super().init(draw)
        if self.bias_start == "uniform":
            return params
        return {name: torch.zeros_like(block) for name, block in params.items()}
