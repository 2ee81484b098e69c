"""Sizes of images, convolutions and sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass

from otafl.core.errors import UserError


@dataclass(frozen=True)
class Window:
    """Sizes of a convolution and its image, in pixels.

    Parameters
    ----------
    channels, height, width : int
        Size of the image.
    kernel : int
        Side of the window.
    stride : int
        Step of the window.
    padding : int
        Zeros around the image.
    pool : int
        Side and step of the max-pooling after the convolution, 1 for none. A remainder at the far
        edge is dropped.
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
        """The number of values in the window, in the order height, width, channel."""
        return self.kernel**2 * self.channels

    @property
    def positions_high(self) -> int:
        """The number of positions of the window along the height."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions_wide(self) -> int:
        """The number of positions of the window along the width."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def positions(self) -> int:
        """The number of positions of the window in one image."""
        return self.positions_high * self.positions_wide

    @property
    def pooled(self) -> tuple[int, int]:
        """The height and width after the pooling."""
        return self.positions_high // self.pool, self.positions_wide // self.pool

    @property
    def features(self) -> int:
        """The number of pixels after the pooling."""
        return math.prod(self.pooled)


def find_image(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return channels, height and width of samples of a shape; None if they are no images."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    side = math.isqrt(math.prod(shape))
    return (1, side, side) if len(shape) == 1 and side**2 == shape[0] else None


def find_image_shape(shape: tuple[int, ...], model: str) -> tuple[int, int, int]:
    """Return channels, height and width of samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    model : str
        Name of the model in the scenario, for the message.

    Returns
    -------
    tuple of int
        Channels, height and width.

    Raises
    ------
    UserError
        If the samples are not images.
    """
    image = find_image(shape)
    if image is None:
        raise UserError(
            f"model.name: '{model}' needs images of shape [height, width] or [channels, height, "
            "width], or a square number of grey pixels; a sample of the data set has shape "
            f"{list(shape)}"
        )
    return image


def require_tokens(shape: tuple[int, ...], model: str) -> int:
    """Return the length of sequences [length] of tokens.

    Raises
    ------
    UserError
        If samples of this shape are none.
    """
    if len(shape) != 1:
        raise UserError(
            f"model.name: '{model}' needs sequences of tokens, but a sample of the data set has "
            f"shape {list(shape)}; must be [length], as of data: shakespeare"
        )
    return shape[0]


def find_sequence_shape(shape: tuple[int, ...], model: str) -> tuple[int, int]:
    """Return length and features of samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample.
    model : str
        Name of the model in the scenario, for the message.

    Returns
    -------
    tuple of int
        Length and features.

    Raises
    ------
    UserError
        If the samples are not sequences.
    """
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) == 1:
        return shape[0], 1
    raise UserError(
        f"model.name: '{model}' needs sequences of shape [length, features] or [length]; a sample "
        f"of the data set has shape {list(shape)}"
    )
