"""Digits: 1,797 handwritten digits of 8x8 pixels from scikit-learn, without a download.

They are those of `load_digits`, the test part of the set in the UCI repository. The last 360 are
the test set.

References
----------
Alpaydin, Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository.
"""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.files import wrap_read_errors

_TEST = 360  # the last fifth


class Digits(DataSource):
    """Samples x [n, 64] in grey, from 0 to 1."""

    ships_with: ClassVar[str] = "scikit-learn"
    input_shape: ClassVar[tuple[int, ...]] = (64,)
    classes: ClassVar[int] = 10

    name: Literal["digits"] = "digits"

    def read(self) -> DataSet:
        table = _read_table()
        x = table[:, :-1].astype(np.float32) / np.float32(16.0)
        y = table[:, -1].astype(np.int64)
        return DataSet(x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:], self.classes)


def _read_table() -> np.ndarray:
    """Return pixels and label of each digit, [1797, 65].

    scikit-learn's file is read directly, because its import takes half a second. The library is
    imported if the file is elsewhere.
    """
    spec = importlib.util.find_spec("sklearn")
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with wrap_read_errors(file, "is damaged", EOFError, zlib.error, ValueError):
                return np.loadtxt(file, np.uint8, delimiter=",")
    from sklearn.datasets import load_digits

    return np.column_stack(load_digits(return_X_y=True))
