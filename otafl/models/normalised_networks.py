"""Share what networks of convolutions with normalisation have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from otafl.core.settings import Settings
from otafl.models.base import Count
from otafl.models.layer_steps import Conv, Norm, Step


class NormedSettings(Settings):
    """Hold the settings of networks of convolutions with normalisation."""

    norm: Literal["batch", "group", "none"] = "batch"
    """after each convolution: batch normalisation, group normalisation (Wu and He 2018), or none,
    where convolutions have biases"""
    groups: int = Field(2, ge=1)
    """groups of channels of a group normalisation, two as in Reddi et al. 2021; where they do not
    divide a layer's channels, their greatest common divisor"""


class StagesSettings(NormedSettings):
    """Hold the settings of networks of stages."""

    blocks: tuple[Count, ...]
    channels: tuple[Count, ...]
    name: str

    def find_conflicts(self) -> Iterator[str]:
        if len(self.blocks) != len(self.channels):
            yield (
                f"channels: got {len(self.channels)} numbers for {len(self.blocks)} stages of "
                "blocks; a number for each would do"
            )


StageChannels = Annotated[
    tuple[Count, ...], Field(min_length=1, description="output channels of each stage")
]


def make_convolution(
    settings: NormedSettings,
    name: str,
    inputs: int,
    outputs: int,
    stride: int = 1,
    number: str = "",
    kernel: int = 3,
    cut: bool = True,
) -> tuple[Step, ...]:
    """Return a convolution that keeps the image's size (of every stride), with its
    normalisation."""
    bias = settings.norm == "none"
    conv = Conv(
        f"{name}conv{number}", inputs, outputs, kernel, stride, (kernel - 1) // 2, bias, cut
    )
    if settings.norm == "none":
        return (conv,)
    groups = settings.groups if settings.norm == "group" else None
    return conv, Norm(f"{name}norm{number}", outputs, groups)
