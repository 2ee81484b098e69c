"""Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
Machine Learning Algorithms", arXiv:1708.07747); URL and checksums from the authors' README."""

from __future__ import annotations

from otafl.data.config import FashionMnistConfig
from otafl.data.dataset import DataSet
from otafl.data.mnist import ImageFiles, load_images

FILES = ImageFiles(
    name="fashion_mnist",
    folder="fashion-mnist",
    description="60,000 + 10,000 articles of clothing of 28x28 pixels, 31 MB",
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)


def load(config: FashionMnistConfig) -> DataSet:
    """Fashion-MNIST with its official split. UserError if a file is missing or corrupt."""
    return load_images(FILES, config)
