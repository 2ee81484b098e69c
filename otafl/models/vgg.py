"""VGG with normalisation for small images: VGG11, VGG16, or one of any size.

Stages of 3x3 convolutions, each with normalisation and ReLU, and 2x2 max-pooling after each stage
(left out for an image of one pixel). Then come the mean over the remaining pixels, and one linear
layer instead of three, as is usual for small images. On 3x32x32 pixels and 10 classes VGG11
(configuration A) has 9,228,362 parameters, VGG16 (configuration D) has 14,724,042 parameters; each
is a `vgg` of these `blocks` and `channels`.

References
----------
Simonyan, Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
    configurations A and D.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otafl.models.base import Count, HiddenWidths, OutputChannels
from otafl.models.layer_contract import Layer
from otafl.models.layers import Linear, MaxPool, MeanPool, Relu
from otafl.models.linear_layer import find_image_shape
from otafl.models.network import (
    Network,
    NormedSettings,
    StagesSettings,
    declare_stages,
    make_convolution,
)

SHAPES = {
    "vgg": ((1, 1, 2), (8, 16, 32)),
    "vgg11": ((1, 1, 2, 2, 2), (64, 128, 256, 512, 512)),
    "vgg16": ((2, 2, 3, 3, 3), (64, 128, 256, 512, 512)),
}
"""Name -> convolutions and channels of the stages."""


class Vgg(Network):
    """VGG of any size.

    Convolutions are "stage1.conv1", ..., their norms "stage1.norm1", ..., and the last layer
    "classifier".

    Raises UserError if the samples are not images.

    Examples
    --------
    `docs/models.md` has a scenario with `model: vgg`.
    """

    class Settings(StagesSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.blocks": [1, 2], "model.channels": [2, 3]}

        name: Literal["vgg", "vgg11", "vgg16"] = "vgg"
        blocks: tuple[Count, ...] = declare_stages(
            SHAPES, 0, "number of convolutions of each stage"
        )
        channels: tuple[Count, ...] = declare_stages(SHAPES, 1, "output channels of each stage")

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        image = find_image_shape(input_shape, settings.name)
        width, side = image[0], min(image[1:])
        steps: list[Layer] = []
        stages = zip(settings.blocks, settings.channels, strict=True)
        for stage, (blocks, outputs) in enumerate(stages):
            for block in range(blocks):
                name, number = f"stage{stage + 1}.", str(block + 1)
                cut = stage + block > 0
                steps += make_convolution(settings, name, width, outputs, number=number, cut=cut)
                if block == blocks - 1 and side > 1:
                    steps.append(MaxPool(2))  # before ReLU, which then has fewer numbers
                    side //= 2
                steps.append(Relu())
                width = outputs
        steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
        super().__init__(image, tuple(steps))


class ConvNet(Network):
    """Small network of 3x3 convolutions with normalisation and max-pooling, for images.

    Each convolution has normalisation, ReLU and 2x2 max-pooling. Then come fully connected layers
    with ReLU. Samples are images: [height, width], [channels, height, width], or a square number of
    grey pixels.

    Convolutions are "conv1", ..., their norms "norm1", ..., hidden layers "linear1", ..., and the
    last layer "classifier".

    Examples
    --------
    `docs/models.md` has a scenario with `model: conv_net`.
    """

    class Settings(NormedSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.channels": [2, 3], "model.hidden": [4]}

        name: Literal["conv_net"] = "conv_net"
        channels: OutputChannels = (16, 32, 64)
        hidden: HiddenWidths = ()

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        image = find_image_shape(input_shape, settings.name)
        width, high, wide = image
        steps: list[Layer] = []
        for number, outputs in enumerate(settings.channels, 1):
            steps += make_convolution(
                settings, "", width, outputs, number=str(number), cut=number > 1
            )
            steps += [MaxPool(2), Relu()]  # ReLU has fewer numbers after the pooling
            width, high, wide = outputs, high // 2, wide // 2
        pixels = high * wide
        for number, outputs in enumerate(settings.hidden, 1):
            steps += [Linear(f"linear{number}", width, outputs, pixels), Relu()]
            width, pixels = outputs, 1
        steps.append(Linear("classifier", width, classes, pixels, last=True))
        super().__init__(image, tuple(steps))
