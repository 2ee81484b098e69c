"""Residual networks for small images: ResNet-18, ResNet-34, or one of any size.

Basic blocks in the form for small images: a 3x3 convolution without pooling, then stages of blocks
of two 3x3 convolutions. The first block of each stage except the first stage has stride 2, and a
parallel 1x1 convolution with normalisation if sizes change. Then come the mean over all pixels and
a linear layer. On 3x32x32 pixels and 10 classes ResNet-18 has 11,173,962 parameters, ResNet-34 has
21,282,122 parameters; each is a `resnet` of these `blocks` and `channels`.

References
----------
He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.models.base import Count
from otafl.models.layer_contract import Layer
from otafl.models.layer_lists import Residual
from otafl.models.layers import Linear, MeanPool, Relu
from otafl.models.linear_layer import find_image_shape
from otafl.models.network import Network, StagesSettings, declare_stages, make_convolution

SHAPES = {
    "resnet": ((1, 1, 1), (8, 16, 32), 3),
    "resnet18": ((2, 2, 2, 2), (64, 128, 256, 512), 3),
    "resnet34": ((3, 4, 6, 3), (64, 128, 256, 512), 15),
}
"""Name -> blocks and channels of the stages, and the first convolutions that FedHM leaves dense.

FedHM's Table 5 leaves the stem and a block dense, Table 6 stages 1 and 2.
"""


class ResNet(Network):
    """Residual network of any size.

    Convolutions are "stem.conv", "stage1.block1.conv1", ..., their norms "stem.norm",
    "stage1.block1.norm1", ..., shortcuts "stage2.block1.shortcut.conv", and the last layer
    "classifier".

    Raises UserError if the samples are not images.

    Examples
    --------
    `studies/fedhm_fair/fedhm_fair.yaml` trains it.
    """

    class Settings(StagesSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.blocks": [1, 1], "model.channels": [2, 3]}

        name: Literal["resnet", "resnet18", "resnet34"] = "resnet"
        blocks: tuple[Count, ...] = declare_stages(
            SHAPES, 0, "number of blocks of two convolutions in each stage"
        )
        channels: tuple[Count, ...] = declare_stages(SHAPES, 1, "output channels of each stage")
        stem_stride: int = Field(1, ge=1)
        """step in pixels of the first convolution, which has channels[0]"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        image = find_image_shape(input_shape, settings.name)
        width = settings.channels[0]
        steps: list[Layer] = [
            *make_convolution(settings, "stem.", image[0], width, settings.stem_stride, cut=False)
        ]
        steps.append(Relu())
        stages = zip(settings.blocks, settings.channels, strict=True)
        for stage, (blocks, outputs) in enumerate(stages):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                name = f"stage{stage + 1}.block{block + 1}."
                body = (
                    *make_convolution(settings, name, width, outputs, stride, "1"),
                    Relu(),
                    *make_convolution(settings, name, outputs, outputs, 1, "2"),
                )
                shortcut: tuple[Layer, ...] = ()
                if stride != 1 or width != outputs:
                    shortcut = make_convolution(
                        settings, f"{name}shortcut.", width, outputs, stride, kernel=1
                    )
                steps += (Residual(body, shortcut), Relu())
                width = outputs
        steps += [MeanPool(), Linear("classifier", width, classes, last=True)]
        super().__init__(image, tuple(steps), dense_prefix=SHAPES[settings.name][2])
