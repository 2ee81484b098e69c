"""Scaling of images that are stored as bytes."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otafl.data.dataset import Bytes, Floats

Scale = Literal["unit", "raw", "signed", "standardised"]
Doubles = NDArray[np.float64]

_SPREAD = 0.001  # added to a deviation of bytes (Shi et al. 2023), which is 0 for a constant pixel


def scale_images(train: Bytes, test: Bytes, scale: Scale) -> tuple[Floats, Floats]:
    """Scale training and test images.

    Parameters
    ----------
    train, test : ndarray, uint8 [n, ...]
        Images.
    scale : str
        Scale of the pixels. unit: [0, 1]; raw: 0 to 255; signed: [-1, 1]; standardised: minus the
        mean of all pixels of both sets, over their deviation + 0.001.

    Returns
    -------
    tuple of two ndarray, float32
        Training and test images.
    """
    if scale == "standardised":
        mean, deviation = _compute_moments(train, test)
        return shift_and_scale(train, test, mean, 1.0 / (deviation + _SPREAD))
    x_train, x_test = train.astype(np.float32), test.astype(np.float32)
    for x in (x_train, x_test):
        if scale != "raw":
            x /= 255.0
        if scale == "signed":
            x *= 2.0
            x -= 1.0
    return x_train, x_test


def shift_and_scale(
    train: Bytes | Floats, test: Bytes | Floats, mean: Doubles, factor: Doubles
) -> tuple[Floats, Floats]:
    """Subtract the mean from images and multiply by the factor.

    Parameters
    ----------
    train, test : ndarray, uint8 or float32 [n, ...]
        Images; float32 arrays are changed in place.
    mean, factor : ndarray, float64
        Numbers that broadcast to an image.

    Returns
    -------
    tuple of two ndarray, float32
        Training and test images.
    """
    shift, factor = mean.astype(np.float32), factor.astype(np.float32)
    x_train, x_test = (part.astype(np.float32, copy=False) for part in (train, test))
    for x in (x_train, x_test):
        x -= shift
        x *= factor
    return x_train, x_test


def _compute_moments(train: Bytes, test: Bytes) -> tuple[Doubles, Doubles]:
    """Compute mean and deviation of all pixels, exactly from their histogram."""
    counts = sum(np.bincount(part.ravel(), minlength=256) for part in (train, test))
    share = counts / np.sum(counts)
    value = np.arange(256.0)
    mean = np.dot(share, value)
    return np.asarray(mean), np.sqrt(np.dot(share, (value - mean) ** 2))
