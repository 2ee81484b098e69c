"""VGG with normalisation for small images: VGG11, VGG16, or one of any size.

Stages of 3x3 convolutions, each with normalisation and ReLU, and 2x2 max-pooling after each stage
(left out for an image of one pixel). Then come the mean over the remaining pixels, and one linear
layer instead of three, as is usual for small images. On 3x32x32 pixels and 10 classes VGG11
(configuration A) has 9,228,362 parameters, VGG16 (configuration D) has 14,724,042 parameters; each
is a `vgg` with these defaults.

References
----------
Simonyan, Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
    configurations A and D.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from otafl.models.base import Count, HiddenWidths, OutputChannels
from otafl.models.layer_contract import Image, Layer
from otafl.models.layers import Linear, MaxPool, MeanPool, Relu
from otafl.models.linear_layer import find_image_shape
from otafl.models.network import (
    Network,
    NormedSettings,
    StageChannels,
    StagesSettings,
    make_convolution,
)

ConvolutionCounts = Annotated[
    tuple[Count, ...], Field(min_length=1, description="number of convolutions of each stage")
]


class Vgg(Network):
    """VGG of any size.

    Convolutions are "stage1.conv1", ..., their norms "stage1.norm1", ..., and the last layer
    "classifier".

    Examples
    --------
    `docs/models.md` has a scenario with `model: vgg`.
    """

    class Settings(StagesSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.blocks": [1, 2], "model.channels": [2, 3]}

        name: Literal["vgg"] = "vgg"
        blocks: ConvolutionCounts = (1, 1, 2)
        channels: StageChannels = (8, 16, 32)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_stages(settings, input_shape, classes))


class Vgg11(Network):
    """VGG11, with parameters named as in `Vgg`.

    Examples
    --------
    `model: vgg11` in a scenario with images.
    """

    class Settings(StagesSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.blocks": [1, 1],
            "model.channels": [2, 3],
            "model.norm": "none",
        }

        name: Literal["vgg11"] = "vgg11"
        blocks: ConvolutionCounts = (1, 1, 2, 2, 2)
        channels: StageChannels = (64, 128, 256, 512, 512)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_stages(settings, input_shape, classes))


class Vgg16(Network):
    """VGG16, with parameters named as in `Vgg`.

    Examples
    --------
    `model: vgg16` in a scenario with images.
    """

    class Settings(StagesSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.blocks": [2, 1],
            "model.channels": [4, 2],
            "model.norm": "group",
        }

        name: Literal["vgg16"] = "vgg16"
        blocks: ConvolutionCounts = (2, 2, 3, 3, 3)
        channels: StageChannels = (64, 128, 256, 512, 512)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_stages(settings, input_shape, classes))


def build_stages(
    settings: StagesSettings, input_shape: tuple[int, ...], classes: int
) -> tuple[Image, tuple[Layer, ...]]:
    """Build the image and the layers of a VGG.

    Parameters
    ----------
    settings : StagesSettings
        Settings.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.

    Returns
    -------
    tuple of int
        Channels, height and width of the image.
    tuple of Layer
        Layers in their order.

    Raises
    ------
    UserError
        If the samples are not images.
    """
    image = find_image_shape(input_shape, settings.name)
    width, side = image[0], min(image[1:])
    steps: list[Layer] = []
    for stage, (blocks, outputs) in enumerate(zip(settings.blocks, settings.channels, strict=True)):
        for block in range(blocks):
            name, number = f"stage{stage + 1}.", str(block + 1)
            steps += make_convolution(
                settings, name, width, outputs, number=number, cut=stage + block > 0
            )
            if block == blocks - 1 and side > 1:
                steps.append(MaxPool(2))  # before ReLU, which then has fewer numbers
                side //= 2
            steps.append(Relu())
            width = outputs
    steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
    return image, tuple(steps)


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
