"""Settings and steps of networks of convolutions with normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from otafl.models.base import Count, ModelSettings
from otafl.models.layer_steps import Conv, Norm
from otafl.models.step_contract import Step


class NormedSettings(ModelSettings):
    """Settings of networks of convolutions with normalisation."""

    norm: Literal["batch", "group", "none"] = "batch"
    """normalisation after each convolution: batch, group (Wu and He 2018), or none, with biases in
    the convolutions"""
    groups: int = Field(2, ge=1)
    """groups of channels of a group normalisation, two as in Reddi et al. 2021; the greatest common
    divisor with a layer's channels if they do not divide them"""


class StagesSettings(NormedSettings):
    """Settings of networks of stages."""

    blocks: tuple[Count, ...]
    channels: tuple[Count, ...]
    name: str

    def find_conflicts(self) -> Iterator[str]:
        if len(self.blocks) != len(self.channels):
            yield (
                f"channels: got {len(self.channels)} numbers for {len(self.blocks)} stages of "
                "blocks; give one number for each stage"
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
    """Make a convolution with its normalisation.

    Parameters
    ----------
    settings : NormedSettings
        Settings of the normalisation.
    name, number : str
        Parts of the names of the steps, "NAMEconvNUMBER" and "NAMEnormNUMBER".
    inputs, outputs : int
        Numbers of channels.
    stride, kernel : int
        Step and side of the window; the padding keeps the size of the image, over the stride.
    cut : bool
        Whether the inputs are hidden channels, of which a narrower network has fewer.

    Returns
    -------
    tuple of Step
        Convolution, and normalisation if the settings have one.
    """
    bias = settings.norm == "none"
    conv = Conv(
        f"{name}conv{number}", inputs, outputs, kernel, stride, (kernel - 1) // 2, bias, cut
    )
    if settings.norm == "none":
        return (conv,)
    groups = settings.groups if settings.norm == "group" else None
    return conv, Norm(f"{name}norm{number}", outputs, groups)
