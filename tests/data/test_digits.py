"""The digits that ship with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from otafl.data import load
from otafl.data.digits import Digits

pytestmark = pytest.mark.exact


def test_digits() -> None:
    pixels, labels = load_digits(return_X_y=True)
    data = load(Digits())
    assert_array_equal(np.concatenate([data.x_train, data.x_test]) * 16, pixels)
    assert_array_equal(np.concatenate([data.y_train, data.y_test]), labels)
    assert len(data.y_test) == 360
    assert data.x_train.shape == (1437, *Digits.input_shape)
    assert load(Digits(pixel_scale="raw")).x_test.max() == 16
