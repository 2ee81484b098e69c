"""VGG8 of the TDPFed paper (Wang, Jin, Liu, Zong, Shao, Li, "Tensor Decomposition based
Personalized Federated Learning", Table I): a `cnn` of its own sizes. No torch here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from otafl.models.config import CnnConfig


class Vgg8Config(CnnConfig):
    """Five 3x3 convolutions of 32, 64, 128, 256 and 256 channels, each with ReLU and 2x2
    max-pooling, then fully connected layers of 256, 256 and the classes; no batch normalisation. On
    3x32x32 pixels 1,112,650 parameters. A `cnn` with these defaults, but that an image too small to
    be pooled is left as it is: 28x28 pixels end, like 32x32, as one pixel of 256 channels."""

    name: Literal["vgg8"] = "vgg8"  # type: ignore[assignment]
    channels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (32, 64, 128, 256, 256), min_length=1, description="output channels of each convolution"
    )
    kernel: int = Field(3, ge=1, description="side of the convolutions' windows in pixels")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 256), description="widths of the fully connected layers before the last"
    )
