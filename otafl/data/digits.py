"""The 1,797 handwritten digits of 8x8 pixels that ship with scikit-learn (`load_digits`; test part
of Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository)."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from otafl.data.config import DigitsConfig
from otafl.data.dataset import DataSet

_TEST = 360  # the last fifth


def load(config: DigitsConfig) -> DataSet:
    """x [n, 64] float32 in [0, 1], or 0 to 16 if raw; the last 360 samples are the test set."""
    pixels, labels = load_digits(return_X_y=True)
    x = pixels.astype(np.float32)
    if config.pixel_scale == "unit":
        x /= 16.0
    y = labels.astype(np.int64)
    return DataSet(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], classes=10)
