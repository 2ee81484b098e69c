"""Read scikit-learn's 1,797 handwritten digits of 8x8 pixels, which need no download.

They are `load_digits`, the test part of the UCI repository's set. The last 360 are the test set.

References
----------
Alpaydin, Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.data.base import DataSource
from otafl.data.dataset import DataSet

_TEST = 360  # the last fifth


class Digits(DataSource):
    """Give x [n, 64], grey, in [0, 1], or 0 to 16 if raw."""

    ships_with: ClassVar[str] = "scikit-learn"
    input_shape: ClassVar[tuple[int, ...]] = (64,)
    classes: ClassVar[int] = 10
    samples: ClassVar[tuple[int, int]] = (1437, 360)

    name: Literal["digits"] = "digits"
    pixel_scale: Literal["unit", "raw"] = Field("unit", description="pixels in [0, 1], or 0 to 16")

    def read(self) -> DataSet:
        from sklearn.datasets import load_digits  # takes a second, which `otafl data` spares

        pixels, labels = load_digits(return_X_y=True)
        x = pixels.astype(np.float32)
        if self.pixel_scale == "unit":
            x /= 16.0
        y = labels.astype(np.int64)
        return DataSet(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], self.classes)
