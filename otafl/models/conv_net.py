"""A small network of convolutions with normalisation and max-pooling."""

from __future__ import annotations

from otafl.models import geometry
from otafl.models.config_network import ConvNetConfig
from otafl.models.network import Linear, MaxPool, Network, Relu, Step
from otafl.models.resnet import convolution


class ConvNet(Network):
    """Convolutions "conv1", ..; their norms "norm1", ..; hidden layers "linear1", ..; the last one
    "classifier"."""

    def __init__(self, config: ConvNetConfig, input_shape: tuple[int, ...], classes: int) -> None:
        image = geometry.image_shape(input_shape, config.name)
        width, high, wide = image
        steps: list[Step] = []
        for number, outputs in enumerate(config.channels, 1):
            steps += convolution(config, "", width, outputs, number=str(number), cut=number > 1)
            if number < len(config.channels) or config.last_pool:
                steps.append(MaxPool(2))  # before ReLU, which then has less to do
                high, wide = high // 2, wide // 2
            steps.append(Relu())
            width = outputs
        pixels = high * wide
        for number, outputs in enumerate(config.hidden, 1):
            steps += [Linear(f"linear{number}", width, outputs, pixels), Relu()]
            width, pixels = outputs, 1
        steps.append(Linear("classifier", width, classes, pixels, last=True))
        super().__init__(image, tuple(steps))
