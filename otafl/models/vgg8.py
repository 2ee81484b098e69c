"""Five 3x3 convolutions and three fully connected layers, for images (VGG8).

Five convolutions of 32, 64, 128, 256 and 256 channels, each with ReLU and 2x2 max-pooling. Then
come fully connected layers of 256, 256 and the classes, without batch normalisation. On 3x32x32
pixels it has 1,112,650 parameters. It is a `cnn` with these defaults, except that an image too
small for pooling stays as it is: 28x28 pixels end, like 32x32, as one pixel of 256 channels.

References
----------
Wang et al., "Tensor Decomposition based Personalized Federated Learning" (TDPFed), Table I; by
    Wang, Jin, Liu, Zong, Shao, Li.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.models.base import HiddenWidths, OutputChannels
from otafl.models.chain_network import to_network
from otafl.models.cnn import WindowSettings, build_layers
from otafl.models.layered import LayeredModel
from otafl.models.network import Network
from otafl.models.step_contract import Channels


class Vgg8(LayeredModel):
    """VGG8.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    Examples
    --------
    `model: vgg8` in a scenario with images.
    """

    class Settings(WindowSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.channels": [2, 3], "model.hidden": [4]}
        pools_all: ClassVar[bool] = False

        name: Literal["vgg8"] = "vgg8"
        channels: OutputChannels = (32, 64, 128, 256, 256)
        kernel: int = Field(3, ge=1)
        """side of the convolutions' windows in pixels"""
        hidden: HiddenWidths = (256, 256)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        layers = build_layers(settings, input_shape, classes)
        super().__init__(layers, settings.slope, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return to_network(self, channels)
