"""Networks of convolutions with max-pooling, then fully connected layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.models.base import Count, HiddenWidths, OutputChannels
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import (
    DropoutSettings,
    Layer,
    Window,
    find_image_shape,
    number_layers,
)
from otafl.models.network import Network
from otafl.models.step_contract import Channels


class WindowSettings(DropoutSettings):
    """Settings of convolutions, also of `vgg8`."""

    pools_all: ClassVar[bool] = True
    """Whether every image must be large enough for pooling; otherwise a small one is not pooled."""

    name: str
    channels: tuple[Count, ...]
    kernel: int = Field(ge=1)
    """side of the convolutions' windows in pixels"""
    stride: int = Field(1, ge=1)
    """step of the convolutions' windows in pixels"""
    padding: Literal["same", "valid"] = "same"
    """zeros around an image: same, so that the window has a position at every pixel (of every
    stride); valid, none"""
    pool: int = Field(2, ge=1)
    """side of the max-pooling after each convolution in pixels; 1 for none"""
    hidden: tuple[Count, ...]

    def find_conflicts(self) -> Iterator[str]:
        if self.padding == "same" and self.kernel % 2 == 0:
            yield (
                f"padding: 'same' needs an odd kernel; got kernel: {self.kernel}, use kernel: "
                f"{self.kernel + 1} or padding: valid"
            )

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that the data set's samples are images of a sufficient size."""
        data = scenario.data
        if data.input_shape is None:
            return ()
        try:
            build_layers(self, data.input_shape, data.classes)
        except UserError as error:
            key = str(error).partition(":")[0].partition(".")[2]
            return [Problem(str(error), ("model", key), (("data",),))]
        return ()


class Cnn(LayeredModel):
    """Convolutions with max-pooling, then fully connected layers, for images (CNN).

    Each convolution has max-pooling and ReLU (or leaky ReLU, as the layers that follow). Samples
    are images: [height, width], [channels, height, width], or a square number of grey pixels. Every
    weight is a matrix: that of a convolution has a row for each number of its window (height,
    width, channel) and a column for each output channel. The last images are read in the order
    height, width, channel. Weights start uniform in +-1/sqrt(fan_in), where fan_in is k k C for a
    convolution.

    On 28x28 pixels, channels [6, 16], padding valid and hidden [120, 84] are LeNet-5 (LeCun et al.
    1998) with max-pooling and ReLU, 44,426 parameters (62,006 on CIFAR-10); channels [32, 64] and
    hidden [512] are the network of McMahan et al. 2017, section 3, 1,663,370 parameters.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document Recognition".
    McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks
        from Decentralized Data", section 3.

    Examples
    --------
    `studies/fedrlr/fedrlr_cnn.yaml` trains it.
    """

    class Settings(WindowSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.channels": [2, 3],
            "model.kernel": 3,
            "model.hidden": [4],
        }

        name: Literal["cnn"] = "cnn"
        channels: OutputChannels = (16, 32)
        kernel: int = Field(5, ge=1)
        """side of the convolutions' windows in pixels"""
        hidden: HiddenWidths = (128,)

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        layers = build_layers(settings, input_shape, classes)
        super().__init__(layers, settings.slope, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return self.narrow(channels)


def build_layers(
    settings: WindowSettings, input_shape: tuple[int, ...], classes: int
) -> tuple[Layer, ...]:
    """Build convolutions and fully connected layers.

    Parameters
    ----------
    settings : WindowSettings
        Settings.
    input_shape : tuple of int
        Shape of one sample.
    classes : int
        Number of classes.

    Returns
    -------
    tuple of Layer
        The layers.

    Raises
    ------
    UserError
        If they do not fit the samples.
    """
    windows = _build_windows(settings, input_shape)
    front = [(one.inputs, n) for one, n in zip(windows, settings.channels, strict=True)]
    widths = [windows[-1].features * settings.channels[-1], *settings.hidden, classes]
    return number_layers([*front, *pairwise(widths)], windows)


def _build_windows(settings: WindowSettings, input_shape: tuple[int, ...]) -> list[Window]:
    """Build the windows of the convolutions."""
    inputs, height, width = find_image_shape(input_shape, settings.name)
    kernel, pool = settings.kernel, settings.pool
    padding = kernel // 2 if settings.padding == "same" else 0
    out: list[Window] = []
    for number, outputs in enumerate(settings.channels, 1):
        window = Window(inputs, height, width, kernel, settings.stride, padding, pool)
        if min(height, width) + 2 * padding < kernel:
            raise UserError(
                f"model.kernel: got {kernel}, but convolution {number} has an image of only "
                f"{height}x{width}; use a smaller kernel, fewer convolutions or padding: same"
            )
        if min(window.pooled) < 1 and not settings.pools_all:
            window = replace(window, pool=1)
        if min(window.pooled) < 1:
            raise UserError(
                f"model.pool: got {pool}, but convolution {number} leaves an image of only "
                f"{window.positions_high}x{window.positions_wide}; use a smaller pool or fewer "
                "convolutions"
            )
        out.append(window)
        inputs, (height, width) = outputs, window.pooled
    return out


class Vgg8(LayeredModel):
    """Five 3x3 convolutions and three fully connected layers, for images (VGG8).

    Five convolutions of 32, 64, 128, 256 and 256 channels, each with ReLU and 2x2 max-pooling. Then
    come fully connected layers of 256, 256 and the classes, without batch normalisation. On 3x32x32
    pixels it has 1,112,650 parameters. It is a `cnn` with these defaults, except that an image too
    small for pooling stays as it is: 28x28 pixels end, like 32x32, as one pixel of 256 channels.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    References
    ----------
    Wang et al., "Tensor Decomposition based Personalized Federated Learning" (TDPFed), Table I; by
        Wang, Jin, Liu, Zong, Shao, Li.

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
        return self.narrow(channels)
