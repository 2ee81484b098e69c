"""CIFAR-10: 50,000 + 10,000 colour images of 32x32 pixels in 10 classes.

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

_MEAN = (0.4914, 0.4822, 0.4465)  # of the channels, pixels in [0, 1]
_DEVIATION = (0.2023, 0.1994, 0.2010)


class Cifar10(DataSource):
    """Samples x [n, 3, 32, 32] in red, green and blue, with the official split."""

    files: ClassVar[Files] = make_archive_files(
        "cifar-10",
        "cifar-10-batches-py",
        "170 MB",
        "c58f30108f718f92721af3b95e74349a",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    )
    input_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 10
    samples: ClassVar[tuple[int, int]] = (50_000, 10_000)

    name: Literal["cifar10"] = "cifar10"
    root: Root = None
    pixel_scale: PixelScale = "unit"

    def read(self) -> DataSet:
        return read_batches(self, "labels", _MEAN, _DEVIATION)
