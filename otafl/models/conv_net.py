"""Small network of 3x3 convolutions with normalisation and max-pooling, for images.

Each convolution has normalisation, ReLU and 2x2 max-pooling. Then come fully connected layers with
ReLU. Samples are images: [height, width], [channels, height, width], or a square number of grey
pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otafl.models.base import HiddenWidths, OutputChannels
from otafl.models.geometry import find_image_shape
from otafl.models.layer_steps import Linear, MaxPool, Relu
from otafl.models.network import Network, NormedSettings, make_convolution
from otafl.models.step_contract import Step


class ConvNet(Network):
    """Convolutional network with normalisation.

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
        steps: list[Step] = []
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
