"""CIFAR-100 (Krizhevsky 2009), by its 100 fine labels; checksums as in torchvision."""

from __future__ import annotations

from otafl.data.cifar10 import archives, load_batches
from otafl.data.config import Cifar100Config
from otafl.data.dataset import DataSet
from otafl.data.sources import locate

_MEAN = (0.5071, 0.4867, 0.4408)  # of the channels, pixels in [0, 1]
_DEVIATION = (0.2675, 0.2565, 0.2761)

FILES = archives(
    "cifar100",
    "cifar-100-python",
    "50,000 + 10,000 colour images of 32x32 pixels, 100 classes, 169 MB",
    "eb9058c3a382ffc7106e4002c42a8d85",
    {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)


def load(config: Cifar100Config) -> DataSet:
    """CIFAR-100 with its official split. UserError if a file is missing or corrupt."""
    folder = locate(FILES, config.root)
    paths = [folder / "train", folder / "test"]
    return load_batches(paths, "fine_labels", config, _MEAN, _DEVIATION)
