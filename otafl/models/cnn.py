"""Convolutional network."""

from __future__ import annotations

import functools

from otafl.core.contracts import Blocks
from otafl.models import geometry
from otafl.models.base import Draw, Layer, LayeredModel, uniform_start
from otafl.models.config import CnnConfig
from otafl.models.network import Channels, Network
from otafl.models.sized_layers import network_of


class Cnn(LayeredModel):
    """Convolutions, each with max-pooling and ReLU (or leaky ReLU, as in the fully connected
    layers that follow). Every
    weight is a matrix: a convolution's has a row for each number of its window (height, width,
    channel) and a column for each output channel. The last images are read in the order height,
    width, channel. Starts as the perceptron does, fan_in being k k C in a convolution."""

    def __init__(self, config: CnnConfig, input_shape: tuple[int, ...], classes: int) -> None:
        sides = geometry.cnn(config, input_shape, classes)
        super().__init__(
            tuple(Layer(f"weight{i}", f"bias{i}", *one) for i, one in enumerate(sides)),
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
