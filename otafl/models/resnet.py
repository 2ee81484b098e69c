"""Residual networks for small images: ResNet-18, ResNet-34, or one of any size.

Basic blocks in the form for small images: a 3x3 convolution without pooling, then stages of blocks
of two 3x3 convolutions. The first block of each stage except the first stage has stride 2, and a
parallel 1x1 convolution with normalisation if sizes change. Then come the mean over all pixels and
a linear layer. On 3x32x32 pixels and 10 classes ResNet-18 has 11,173,962 parameters, ResNet-34 has
21,282,122 parameters; each is a `resnet` with these defaults.

References
----------
He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from otafl.models.base import Count
from otafl.models.layer_contract import Image, Layer, Unroll
from otafl.models.layer_lists import Residual
from otafl.models.layers import Linear, MeanPool, Relu
from otafl.models.linear_layer import find_image_shape
from otafl.models.network import Network, StageChannels, StagesSettings, make_convolution

BlockCounts = Annotated[
    tuple[Count, ...],
    Field(min_length=1, description="number of blocks of two convolutions in each stage"),
]


class ResidualSettings(StagesSettings):
    """Settings of residual networks."""

    dense_prefix: ClassVar[int] = 3
    """Number of the first convolutions that FedHM leaves dense (Table 5: the stem and a block)."""

    stem_stride: int = Field(1, ge=1)
    """step in pixels of the first convolution, which has channels[0]"""


class ResNet(Network):
    """Residual network of any size.

    Convolutions are "stem.conv", "stage1.block1.conv1", ..., their norms "stem.norm",
    "stage1.block1.norm1", ..., shortcuts "stage2.block1.shortcut.conv", and the last layer
    "classifier".

    Examples
    --------
    `studies/fedhm_fair/fedhm_fair.yaml` trains it.
    """

    class Settings(ResidualSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.blocks": [1, 1], "model.channels": [2, 3]}

        name: Literal["resnet"] = "resnet"
        blocks: BlockCounts = (1, 1, 1)
        channels: StageChannels = (8, 16, 32)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_residual(settings, input_shape, classes))


class ResNet18(Network):
    """ResNet-18, with parameters named as in `ResNet`.

    Examples
    --------
    `model: resnet18` in a scenario with images.
    """

    class Settings(ResidualSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.blocks": [2, 1], "model.channels": [2, 3]}

        name: Literal["resnet18"] = "resnet18"
        blocks: BlockCounts = (2, 2, 2, 2)
        channels: StageChannels = (64, 128, 256, 512)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_residual(settings, input_shape, classes))


class ResNet34(Network):
    """ResNet-34, with parameters named as in `ResNet`.

    Examples
    --------
    `model: resnet34` in a scenario with images.
    """

    class Settings(ResidualSettings):
        dense_prefix: ClassVar[int] = 15  # FedHM's Table 6: stages 1 and 2
        example: ClassVar[Mapping[str, Any]] = {
            "model.blocks": [1, 1, 1],
            "model.channels": [2, 3, 2],
            "model.norm": "none",
        }

        name: Literal["resnet34"] = "resnet34"
        blocks: BlockCounts = (3, 4, 6, 3)
        channels: StageChannels = (64, 128, 256, 512)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(*build_residual(settings, input_shape, classes))


def build_residual(
    settings: ResidualSettings, input_shape: tuple[int, ...], classes: int
) -> tuple[Image, tuple[Layer, ...], Unroll, float, int]:
    """Build the arguments of `Network` for a residual network.

    Parameters
    ----------
    settings : ResidualSettings
        Settings.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.

    Returns
    -------
    tuple
        Image, layers, unroll, scale and dense prefix.

    Raises
    ------
    UserError
        If the samples are not images.
    """
    image = find_image_shape(input_shape, settings.name)
    width = settings.channels[0]
    steps = [*make_convolution(settings, "stem.", image[0], width, settings.stem_stride, cut=False)]
    steps.append(Relu())
    for stage, (blocks, outputs) in enumerate(zip(settings.blocks, settings.channels, strict=True)):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            name = f"stage{stage + 1}.block{block + 1}."
            steps += _build_block(settings, name, width, outputs, stride)
            width = outputs
    steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
    return image, tuple(steps), "vertical_first", 1.0, settings.dense_prefix


def _build_block(
    settings: ResidualSettings, name: str, inputs: int, outputs: int, stride: int
) -> tuple[Layer, ...]:
    """Build the layers of a block."""
    body = (
        *make_convolution(settings, name, inputs, outputs, stride, "1"),
        Relu(),
        *make_convolution(settings, name, outputs, outputs, 1, "2"),
    )
    shortcut: tuple[Layer, ...] = ()
    if stride != 1 or inputs != outputs:
        shortcut = make_convolution(settings, f"{name}shortcut.", inputs, outputs, stride, kernel=1)
    return Residual(body, shortcut), Relu()
