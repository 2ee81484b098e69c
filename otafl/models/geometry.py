"""Tell the sizes of images and of convolutions before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from otafl.core.errors import UserError


@dataclass(frozen=True)
class Window:
    """Say how a convolution looks at its image, in pixels.

    channels, height, width: of the image. kernel: side of the window; stride: its step; padding:
    zeros around the image. pool: side and step of the max-pooling after it, 1 for none; what is
    left over at the far edge is dropped.
    """

    channels: int
    height: int
    width: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def inputs(self) -> int:
        """Count the numbers that the window sees at once, in the order height, width, channel."""
        return self.kernel**2 * self.channels

    @property
    def positions_high(self) -> int:
        """Count the places of the window along the height."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions_wide(self) -> int:
        """Count the places of the window along the width."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions(self) -> int:
        """Count the places of the window in one image."""
        return self.positions_high * self.positions_wide

    @property
    def pooled(self) -> tuple[int, int]:
        """Return height and width after the pooling."""
        return self.positions_high // self.pool, self.positions_wide // self.pool

    @property
    def features(self) -> int:
        """Count the pixels after the pooling."""
        return math.prod(self.pooled)


def find_image_shape(shape: tuple[int, ...], model: str) -> tuple[int, int, int]:
    """Return channels, height and width of samples of this shape. Raises UserError if they are no
    images; model: which of a scenario needs them, for its message."""
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
