"""VGG with normalisation, for small images.

Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
configurations A and D; with one linear layer in the place of three, as is usual on small images.
"""

from __future__ import annotations

from otafl.models import geometry
from otafl.models.config_network import VggConfig
from otafl.models.network import Linear, MaxPool, MeanPool, Network, Relu, Step
from otafl.models.resnet import convolution


class Vgg(Network):
    """Convolutions "stage1.conv1", .. and their norms "stage1.norm1", ..; the last layer
    "classifier"."""

    def __init__(self, config: VggConfig, input_shape: tuple[int, ...], classes: int) -> None:
        image = geometry.image_shape(input_shape, config.name)
        width, side = image[0], min(image[1:])
        steps: list[Step] = []
        for stage, (blocks, outputs) in enumerate(zip(config.blocks, config.channels, strict=True)):
            for block in range(blocks):
                name, number = f"stage{stage + 1}.", str(block + 1)
                steps += convolution(
                    config, name, width, outputs, number=number, cut=stage + block > 0
                )
                if block == blocks - 1 and side > 1:
                    steps.append(MaxPool(2))  # before ReLU, which then has less to do
                    side //= 2
                steps.append(Relu())
                width = outputs
        steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
        super().__init__(image, tuple(steps))
