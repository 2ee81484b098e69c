"""CIFAR-100: 50,000 + 10,000 colour images of 32x32 pixels in 100 classes.

The classes are the fine labels.

References
----------
Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.data.cifar import Cifar, make_archive_files


class Cifar100(Cifar):
    """Samples x [n, 3, 32, 32] in red, green and blue, with the official split."""

    batches: ClassVar = ("train", "test")
    files: ClassVar = make_archive_files(
        "cifar-100", "cifar-100-python", "169 MB", "eb9058c3a382ffc7106e4002c42a8d85", *batches
    )
    label_key: ClassVar = "fine_labels"
    channel_mean: ClassVar = (0.5071, 0.4867, 0.4408)
    channel_deviation: ClassVar = (0.2675, 0.2565, 0.2761)
    classes: ClassVar = 100

    name: Literal["cifar100"] = "cifar100"
