"""Residual networks of basic blocks.

He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition", in the form for small
images: a first convolution of 3x3 and no pooling, a 1x1 convolution with normalisation as the
shortcut where a block changes the image's size.
"""

from __future__ import annotations

from otafl.models import geometry
from otafl.models.config_network import NormedConfig, ResNetConfig
from otafl.models.network import Conv, Linear, MeanPool, Network, Norm, Relu, Residual, Step


class ResNet(Network):
    """Convolutions "stem.conv", "stage1.block1.conv1", ..; their norms "stem.norm",
    "stage1.block1.norm1", ..; shortcuts "stage2.block1.shortcut.conv"; the last layer
    "classifier". dense_prefix: convolutions at the front, without shortcuts, that low-rank methods
    leave dense."""

    def __init__(self, config: ResNetConfig, input_shape: tuple[int, ...], classes: int) -> None:
        image = geometry.image_shape(input_shape, config.name)
        width = config.channels[0]
        steps = [*convolution(config, "stem.", image[0], width, config.stem_stride, cut=False)]
        steps.append(Relu())
        for stage, (blocks, outputs) in enumerate(zip(config.blocks, config.channels, strict=True)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                name = f"stage{stage + 1}.block{block + 1}."
                steps += _block(config, name, width, outputs, stride)
                width = outputs
        steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
        self.dense_prefix = 1 + 2 * config.dense_blocks
        super().__init__(image, tuple(steps))


def _block(
    config: ResNetConfig, name: str, inputs: int, outputs: int, stride: int
) -> tuple[Step, ...]:
    body = (
        *convolution(config, name, inputs, outputs, stride, "1"),
        Relu(),
        *convolution(config, name, outputs, outputs, 1, "2"),
    )
    shortcut: tuple[Step, ...] = ()
    if stride != 1 or inputs != outputs:
        shortcut = convolution(config, f"{name}shortcut.", inputs, outputs, stride, kernel=1)
    return Residual(body, shortcut), Relu()


def convolution(
    config: NormedConfig,
    name: str,
    inputs: int,
    outputs: int,
    stride: int = 1,
    number: str = "",
    kernel: int = 3,
    cut: bool = True,
) -> tuple[Step, ...]:
    """A convolution that keeps the image's size (of every stride), with its normalisation."""
    bias = config.norm == "none"
    conv = Conv(
        f"{name}conv{number}", inputs, outputs, kernel, stride, (kernel - 1) // 2, bias, cut
    )
    if config.norm == "none":
        return (conv,)
    groups = config.groups if config.norm == "group" else None
    return conv, Norm(f"{name}norm{number}", outputs, groups)
