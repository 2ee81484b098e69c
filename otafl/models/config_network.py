"""Settings of the models whose width and rank can be cut."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings

Count = Annotated[int, Field(ge=1)]


class NormedConfig(Settings):
    """What networks of convolutions with normalisation share."""

    norm: Literal["batch", "group", "none"] = Field(
        "batch",
        description="after each convolution: batch normalisation, group normalisation (Wu and He "
        "2018), or none, where convolutions have biases",
    )
    groups: int = Field(
        2,
        ge=1,
        description="groups of channels of a group normalisation, two as in Reddi et al. 2021; "
        "where they do not divide a layer's channels, their greatest common divisor",
    )


class BlocksConfig(NormedConfig):
    """What networks of stages share."""

    blocks: tuple[Count, ...]
    channels: tuple[Count, ...]

    @model_validator(mode="after")
    def _a_width_for_each_stage(self) -> BlocksConfig:
        if len(self.blocks) != len(self.channels):
            raise ValueError(
                f"channels: got {len(self.channels)} numbers for {len(self.blocks)} stages of "
                "blocks; a number for each would do"
            )
        return self


class ResNetConfig(BlocksConfig):
    """Residual network of basic blocks (He, Zhang, Ren, Sun 2016) for small images: a 3x3
    convolution, no pooling after it, then stages of blocks of two 3x3 convolutions, the first of
    each stage but the first with stride 2 and a 1x1 convolution beside it where sizes change, the
    mean over all pixels, and a linear layer."""

    dense_blocks: ClassVar[int] = 1
    """The first blocks, which FedHM leaves as they are (Table 5: one of ResNet-18)."""

    name: Literal["resnet"] = "resnet"
    blocks: tuple[Count, ...] = Field(
        (1, 1, 1), min_length=1, description="blocks of each stage; two convolutions each"
    )
    channels: tuple[Count, ...] = Field(
        (8, 16, 32), min_length=1, description="output channels of each stage"
    )
    stem_stride: int = Field(
        1, ge=1, description="step in pixels of the first convolution, which has channels[0]"
    )


class ResNet18Config(ResNetConfig):
    """ResNet-18 for small images, 11,173,962 parameters on 3x32x32 pixels and 10 classes. A
    `resnet` with these defaults."""

    name: Literal["resnet18"] = "resnet18"  # type: ignore[assignment]
    blocks: tuple[Count, ...] = Field(
        (2, 2, 2, 2), min_length=1, description="blocks of each stage; two convolutions each"
    )
    channels: tuple[Count, ...] = Field(
        (64, 128, 256, 512), min_length=1, description="output channels of each stage"
    )


class ResNet34Config(ResNet18Config):
    """ResNet-34 for small images, 21,282,122 parameters on 3x32x32 pixels and 10 classes. A
    `resnet` with these defaults."""

    dense_blocks: ClassVar[int] = 7  # Table 6: stages 1 and 2

    name: Literal["resnet34"] = "resnet34"  # type: ignore[assignment]
    blocks: tuple[Count, ...] = Field(
        (3, 4, 6, 3), min_length=1, description="blocks of each stage; two convolutions each"
    )


class VggConfig(BlocksConfig):
    """VGG (Simonyan and Zisserman 2015) for small images: stages of 3x3 convolutions, each with
    normalisation and ReLU, and 2x2 max-pooling after each stage (left out where the image is of one
    pixel already); then the mean over the pixels that are left, and a linear layer."""

    name: Literal["vgg"] = "vgg"
    blocks: tuple[Count, ...] = Field(
        (1, 1, 2), min_length=1, description="convolutions of each stage"
    )
    channels: tuple[Count, ...] = Field(
        (8, 16, 32), min_length=1, description="output channels of each stage"
    )


class Vgg11Config(VggConfig):
    """VGG11 (configuration A) for small images, 9,228,362 parameters on 3x32x32 pixels and 10
    classes. A `vgg` with these defaults."""

    name: Literal["vgg11"] = "vgg11"  # type: ignore[assignment]
    blocks: tuple[Count, ...] = Field(
        (1, 1, 2, 2, 2), min_length=1, description="convolutions of each stage"
    )
    channels: tuple[Count, ...] = Field(
        (64, 128, 256, 512, 512), min_length=1, description="output channels of each stage"
    )


class Vgg16Config(Vgg11Config):
    """VGG16 (configuration D) for small images, 14,724,042 parameters on 3x32x32 pixels and 10
    classes. A `vgg` with these defaults."""

    name: Literal["vgg16"] = "vgg16"  # type: ignore[assignment]
    blocks: tuple[Count, ...] = Field(
        (2, 2, 3, 3, 3), min_length=1, description="convolutions of each stage"
    )


class ConvNetConfig(NormedConfig):
    """A small network of 3x3 convolutions, each with normalisation, ReLU and 2x2 max-pooling, then
    fully connected layers with ReLU. Samples are images: [height, width],
    [channels, height, width], or a square number of grey pixels."""

    name: Literal["conv_net"] = "conv_net"
    channels: tuple[Count, ...] = Field(
        (16, 32, 64), min_length=1, description="output channels of each convolution"
    )
    last_pool: bool = Field(True, description="max-pooling after the last convolution too")
    hidden: tuple[Count, ...] = Field(
        (), description="widths of the fully connected layers before the last; may be empty"
    )
