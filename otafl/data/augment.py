"""Random crops and flips of the images of training minibatches.

An image is padded on all sides with black pixels, cut to its size again at a random place, and
flipped left to right with probability 1/2. This is the usual augmentation of CIFAR. Black is the
smallest value of a channel in the training images. The random numbers depend on seed, trial,
device, round, step, draw and the position in the minibatch.

References
----------
He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.rng import Streams, declare_family
from otafl.core.settings import Settings
from otafl.data.dataset import DataSet
from otafl.models.linear_layer import find_image

AUGMENT = declare_family("augment", __name__)


class AugmentSettings(Settings):
    """Augmentation of the images of training minibatches, with black padding."""

    crop: int = Field(0, ge=0)
    """pixels of padding on each side of an image before the random crop; no crop by default"""
    flip: bool = False
    """whether images are flipped left to right with probability 1/2"""


class Augmentation:
    """Augmentation of samples of one shape.

    Parameters
    ----------
    settings : AugmentSettings
        Padding and flips.
    data : DataSet
        Data set with samples [height, width], [channels, height, width] or a square number of grey
        pixels.
    streams : Streams
        Random streams of the trials.

    Raises
    ------
    UserError
        If the samples are no images.
    """

    def __init__(self, settings: AugmentSettings, data: DataSet, streams: Streams) -> None:
        self._pad, self._flip = settings.crop, settings.flip
        image = find_image(data.input_shape)
        if image is None:
            raise UserError(
                "data.augment: crops and flips images, but a sample of the data set has shape "
                f"{list(data.input_shape)}; leave the key out"
            )
        self._channels, self._high, self._wide = image
        place, dtype = streams.device, streams.dtype
        black = data.x_train.reshape(len(data.x_train), self._channels, -1).min((0, 2))
        self._black = torch.from_numpy(black)[:, None].to(place, dtype)
        self._rows = torch.arange(self._high, device=place)
        self._columns = torch.arange(self._wide, device=place)
        self._streams = streams

    def __call__(
        self,
        x: Tensor,
        tick: Tensor,
        trial: Tensor,
        device: Tensor,
        draw: int,
        batch_size: int,
    ) -> Tensor:
        """Augment the images of a minibatch.

        Parameters
        ----------
        x : Tensor, [n, B, *shape]
            Images of n pairs of trial and device, B each.
        tick : Tensor, int64 [1]
            Key of a round and step in the random stream.
        trial, device : Tensor, int64 [n]
            Numbers of trials and devices.
        draw : int
            Number of the draw; 0 is the minibatch of local work.
        batch_size : int
            Images that numbers are drawn for, of which the first B are used.

        Returns
        -------
        Tensor, [n, B, *shape]
            Augmented images, a new tensor.
        """
        purpose = AUGMENT / draw if draw else AUGMENT
        uniform = self._streams.draw_device_uniform_rounds(
            purpose, tick, trial, device, (3, batch_size)
        )
        down, right, flip = uniform[0, ..., : x.shape[1]].unbind(1)
        places = 2 * self._pad + 1
        row = self._rows + ((down * places).long() - self._pad)[..., None]
        column = self._columns
        if self._flip:
            column = torch.where(flip[..., None] < 0.5, column.flip(0), column)
        column = column + ((right * places).long() - self._pad)[..., None]
        # [n, B, high, wide]: source position of each pixel, and whether it is inside the image
        inside = ((row >= 0) & (row < self._high))[..., None]
        inside = inside & ((column >= 0) & (column < self._wide))[..., None, :]
        source = row[..., None] * self._wide + column[..., None, :]
        source = torch.where(inside, source, 0).flatten(2)[:, :, None]
        images = x.reshape(*x.shape[:2], self._channels, -1)
        seen = images.gather(3, source.expand(-1, -1, self._channels, -1))
        if self._pad:
            seen = torch.where(inside.flatten(2)[:, :, None], seen, self._black)
        return seen.view(x.shape)
