"""Fully connected layers with ReLU between them (multilayer perceptron, MLP).

Weights start uniform in +-1/sqrt(fan_in), with standard deviation 1/sqrt(3 fan_in). Biases start at
zero, or like the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.models.base import Count
from otafl.models.layer_contract import Channels
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import DropoutSettings, make_chain
from otafl.models.network import Network


class Mlp(LayeredModel):
    """Multilayer perceptron.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    Examples
    --------
    `scenarios/waveform.yaml` trains it.
    """

    class Settings(DropoutSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.hidden": [4]}

        name: Literal["mlp"] = "mlp"
        hidden: tuple[Count, ...] = Field((100,), min_length=1)
        """widths of the hidden layers"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        widths = [math.prod(input_shape), *settings.hidden, classes]
        layers = make_chain(widths, settings.slope)
        super().__init__(layers, None, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return self.narrow(channels)
