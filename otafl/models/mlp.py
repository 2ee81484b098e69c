"""Multilayer perceptron."""

from __future__ import annotations

import functools

import torch

from otafl.core.contracts import Blocks
from otafl.models.base import Draw, Layer, LayeredModel, uniform_start
from otafl.models.config import MlpConfig
from otafl.models.network import Channels, Network
from otafl.models.sized_layers import network_of


class Mlp(LayeredModel):
    """Fully connected layers with ReLU or leaky ReLU. Weights start uniform in +-1/sqrt(fan_in),
    whose standard deviation is 1/sqrt(3 fan_in); biases start at zero, or as the weights do."""

    def __init__(self, config: MlpConfig, input_shape: tuple[int, ...], classes: int) -> None:
        widths = [torch.Size(input_shape).numel(), *config.hidden, classes]
        super().__init__(
            tuple(
                Layer(f"weight{i}", f"bias{i}", widths[i], widths[i + 1])
                for i in range(len(widths) - 1)
            ),
            config.slope,
        )
        self._bias_start = config.bias_start

    def init(self, draw: Draw) -> Blocks:
        return uniform_start(self.layers, draw, self._bias_start)

    def network(self, channels: Channels) -> Network:
        """As `Sized` has it; starts uniform in +-sqrt(6 / fan_in)."""
        return self._network.network(channels)

    @property
    def factorisable(self) -> tuple[str, ...]:
        """As `Sized` has it."""
        return self._network.factorisable

    @functools.cached_property
    def _network(self) -> Network:
        return network_of(self.layers, self.leaky_slope)
