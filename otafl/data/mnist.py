"""MNIST: 60,000 + 10,000 handwritten digits of 28x28 pixels.

References
----------
LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document Recognition".
LeCun, Cortes, Burges, "The MNIST database".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.data.idx import GreyImages, make_image_files


class Mnist(GreyImages):
    """Samples x [n, 784] in grey, with the official split."""

    files: ClassVar = make_image_files(
        folder="mnist",
        size="12 MB",
        # The authors' own site no longer serves the files; this is torchvision's mirror.
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        md5={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    )

    name: Literal["mnist"] = "mnist"
