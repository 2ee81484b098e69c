"""Sizes of convolutions, known before anything is computed: no torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from otafl.core.errors import UserError
from otafl.models.config import CnnConfig
from otafl.models.vgg8 import Vgg8Config


@dataclass(frozen=True)
class Window:
    """How a convolution looks at its image, in pixels. channels, height, width: of the image.
    kernel: side of the window; stride: its step; padding: zeros around the image. pool: side and
    step of the max-pooling after it, 1 for none; what is left over at the far edge is dropped."""

    channels: int
    height: int
    width: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def inputs(self) -> int:
        """Numbers that the window sees at once, in the order height, width, channel."""
        return self.kernel**2 * self.channels

    @property
    def positions_high(self) -> int:
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions_wide(self) -> int:
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions(self) -> int:
        """Places of the window in one image."""
        return self.positions_high * self.positions_wide

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width after the pooling."""
        return self.positions_high // self.pool, self.positions_wide // self.pool

    @property
    def features(self) -> int:
        """Pixels after the pooling."""
        return math.prod(self.pooled)


def image_shape(shape: tuple[int, ...], model: str = "cnn") -> tuple[int, int, int]:
    """Channels, height and width of samples of this shape, for the model of this name."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    side = math.isqrt(math.prod(shape))
    if len(shape) == 1 and side**2 == shape[0]:
        return 1, side, side
    raise UserError(
        f"model.name: '{model}' needs images, but a sample of the data set has shape "
        f"{list(shape)}; "
        "[height, width], [channels, height, width] or a square number of grey pixels would do"
    )


class Sides(NamedTuple):
    """Of a layer's weight; the window if it is a convolution."""

    inputs: int
    outputs: int
    window: Window | None = None


def cnn(config: CnnConfig, input_shape: tuple[int, ...], classes: int) -> list[Sides]:
    """Every layer of a `cnn`; raises UserError if it does not fit the samples."""
    windows = _windows(config, input_shape)
    widths = [windows[-1].features * config.channels[-1], *config.hidden, classes]
    front = [Sides(w.inputs, n, w) for w, n in zip(windows, config.channels, strict=True)]
    return front + [Sides(inputs, outputs) for inputs, outputs in pairwise(widths)]


def _windows(config: CnnConfig, input_shape: tuple[int, ...]) -> list[Window]:
    channels, height, width = image_shape(input_shape)
    padding = config.kernel // 2 if config.padding == "same" else 0
    out: list[Window] = []
    for number, outputs in enumerate(config.channels, 1):
        window = Window(channels, height, width, config.kernel, config.stride, padding, config.pool)
        if min(height, width) + 2 * padding < config.kernel:
            raise UserError(
                f"model.kernel: got {config.kernel}, but convolution {number} sees an image of "
                f"only {height}x{width}; a smaller kernel, fewer convolutions or padding: same "
                "would do"
            )
        if min(window.pooled) < 1 and isinstance(config, Vgg8Config):
            window = replace(window, pool=1)
        if min(window.pooled) < 1:
            raise UserError(
                f"model.pool: got {config.pool}, but convolution {number} leaves an image of only "
                f"{window.positions_high}x{window.positions_wide}; a smaller pool or fewer "
                "convolutions would do"
            )
        out.append(window)
        channels, (height, width) = outputs, window.pooled
    return out
