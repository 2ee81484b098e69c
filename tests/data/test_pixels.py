"""Scales of images that are stored as bytes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otafl.data.pixels import scale_images

pytestmark = pytest.mark.exact


def test_scales_of_grey_images() -> None:
    """By hand: pixels 0, 2, 4, 6 of three images, and one pixel that never changes."""
    train, test = np.array([[0, 9], [2, 9]], np.uint8), np.array([[4, 9]], np.uint8)
    values = np.array([0, 9, 2, 9, 4, 9])
    one = scale_images(train, test, "standardised")
    expected = (values - values.mean()) / (values.std() + 0.001)
    assert_allclose(np.concatenate([one[0], one[1]]).ravel(), expected, rtol=1e-5)
    signed = scale_images(train, test, "signed")
    assert_allclose(signed[0], train / 127.5 - 1, atol=1e-6)
