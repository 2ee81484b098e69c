"""Networks of convolutions with max-pooling, then fully connected layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.models.base import Count, HiddenWidths, OutputChannels
from otafl.models.layer_contract import Channels, Image, Layer
from otafl.models.layered import LayeredModel
from otafl.models.layers import Conv, MaxPool, Relu
from otafl.models.linear_layer import DropoutSettings, find_image_shape, make_chain
from otafl.models.network import Network


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
        layers, image = build_layers(settings, input_shape, classes)
        super().__init__(layers, image, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return self.narrow(channels)


def build_layers(
    settings: WindowSettings, input_shape: tuple[int, ...], classes: int
) -> tuple[tuple[Layer, ...], Image]:
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
    tuple of int
        Channels, height and width of a sample.

    Raises
    ------
    UserError
        If they do not fit the samples.
    """
    image = find_image_shape(input_shape, settings.name)
    inputs, height, width = image
    kernel, pool = settings.kernel, settings.pool
    padding = kernel // 2 if settings.padding == "same" else 0
    front: list[Layer] = []
    for number, outputs in enumerate(settings.channels):
        if min(height, width) + 2 * padding < kernel:
            raise UserError(
                f"model.kernel: got {kernel}, but convolution {number + 1} has an image of only "
                f"{height}x{width}; use a smaller kernel, fewer convolutions or padding: same"
            )
        if front:
            front.append(Relu(settings.slope))
        sizes = inputs, outputs, kernel, settings.stride, padding
        conv = Conv(str(number), *sizes, has_bias=True, cut=number > 0, numbered=True)
        inputs, height, width = conv.count((inputs, height, width), "vertical_first").image
        front.append(conv)
        if min(height, width) < pool and settings.pools_all:
            raise UserError(
                f"model.pool: got {pool}, but convolution {number + 1} leaves an image of only "
                f"{height}x{width}; use a smaller pool or fewer convolutions"
            )
        if 1 < pool <= min(height, width):
            front.append(MaxPool(pool))
            height, width = height // pool, width // pool
    widths = [inputs * height * width, *settings.hidden, classes]
    return make_chain(widths, settings.slope, front), image


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
        layers, image = build_layers(settings, input_shape, classes)
        super().__init__(layers, image, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return self.narrow(channels)
