"""CIFAR-10: 50,000 + 10,000 colour images of 32x32 pixels in 10 classes.

References
----------
Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.data.cifar import Cifar, make_archive_files


class Cifar10(Cifar):
    """Samples x [n, 3, 32, 32] in red, green and blue, with the official split."""

    batches: ClassVar = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    files: ClassVar = make_archive_files(
        "cifar-10",
        "cifar-10-batches-py",
        "170 MB",
        "c58f30108f718f92721af3b95e74349a",
        *batches,
    )
    label_key: ClassVar = "labels"
    channel_mean: ClassVar = (0.4914, 0.4822, 0.4465)
    channel_deviation: ClassVar = (0.2023, 0.1994, 0.2010)
    classes: ClassVar = 10

    name: Literal["cifar10"] = "cifar10"
