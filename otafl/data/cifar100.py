"""CIFAR-100: 50,000 + 10,000 colour images of 32x32 pixels in 100 classes.

The classes are the fine labels.

References
----------
Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.data.base import DataSource
from otafl.data.cifar import PixelScale, make_archive_files, read_batches
from otafl.data.dataset import DataSet
from otafl.data.files import Files, Root

_MEAN = (0.5071, 0.4867, 0.4408)  # of the channels, pixels in [0, 1]
_DEVIATION = (0.2675, 0.2565, 0.2761)


class Cifar100(DataSource):
    """Samples x [n, 3, 32, 32] in red, green and blue, with the official split."""

    files: ClassVar[Files] = make_archive_files(
        "cifar-100",
        "cifar-100-python",
        "169 MB",
        "eb9058c3a382ffc7106e4002c42a8d85",
        {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    )
    input_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 100
    samples: ClassVar[tuple[int, int]] = (50_000, 10_000)

    name: Literal["cifar100"] = "cifar100"
    root: Root = None
    pixel_scale: PixelScale = "unit"

    def read(self) -> DataSet:
        return read_batches(self, "fine_labels", _MEAN, _DEVIATION)
