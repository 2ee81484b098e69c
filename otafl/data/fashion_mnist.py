"""Fashion-MNIST: 60,000 + 10,000 images of clothing, 28x28 pixels in 10 classes.

URL and checksums are from the authors' README.

References
----------
Xiao, Rasul, Vollgraf 2017, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
    Algorithms", arXiv:1708.07747.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.data.idx import GreyImages, make_image_files


class FashionMnist(GreyImages):
    """Samples x [n, 784] in grey, with the official split."""

    files: ClassVar = make_image_files(
        folder="fashion-mnist",
        size="31 MB",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        md5={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    )

    name: Literal["fashion_mnist"] = "fashion_mnist"
