"""FEMNIST: handwritten digits and letters of 28x28 pixels by about 3,600 writers.

They are characters of NIST Special Database 19, with pixels in [0, 1] and a background of 1, as
LEAF made them. The library `datasets` reads them by path or name: a folder that `save_to_disk`
wrote or one of Parquet files, or a data set of the Hugging Face hub, which the library downloads to
its own cache when it is first read. The package datasets is needed: `pip install 'otafl[hf]'`. A
random tenth of each writer's samples tests, as in LEAF's `split_data.py`.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data import users
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.hugging_face import check_column, open_splits, read_pixels
from otafl.data.sample_assignment import SampleAssignment

_SIDE = 28


class Femnist(DataSource):
    """Samples x [n, 784] in grey, by writer in alphabetical order."""

    has_users: ClassVar[bool] = True
    input_shape: ClassVar[tuple[int, ...]] = (_SIDE * _SIDE,)
    classes: ClassVar[int] = 62

    name: Literal["femnist"] = "femnist"
    dataset: str = Field("flwrlabs/femnist", min_length=1)
    """path of a folder, or name on the Hugging Face hub, with the columns image, writer_id and
    character"""
    fraction: users.Fraction = 0.05
    min_samples: users.MinSamples = 2
    sample_seed: users.SampleSeed = 0

    def read(self) -> DataSet:
        splits = open_splits(self.name, self.dataset)
        if "train" not in splits:
            raise UserError(
                f"data.dataset: {self.dataset!r} has the splits {', '.join(splits)}; expected "
                "'train' with all samples, as flwrlabs/femnist has it"
            )
        table = splits["train"]
        for column in ("image", "writer_id", "character"):
            check_column(table, column, "dataset")
        names, writer = np.unique(table["writer_id"][:], return_inverse=True)
        own = SampleAssignment.group_by_device(np.arange(len(writer)), writer, len(names))
        generator = np.random.default_rng(self.sample_seed)
        chosen = []
        for index in users.draw_users(own.counts, self.fraction, self.min_samples, generator):
            samples = table.select(own[index])
            pixels = read_pixels(samples["image"], "image")
            if pixels.shape[1:] != (_SIDE, _SIDE):
                raise UserError(
                    f"data.dataset: the images of writer {str(names[index])!r} are "
                    f"{list(pixels.shape[1:])}; expected grey ones of [{_SIDE}, {_SIDE}] pixels"
                )
            x = pixels.reshape(len(pixels), -1) / np.float32(255)
            y = np.array(samples["character"][:], np.int64)
            chosen.append(users.split_user(x, y, generator))
        return users.join_users(chosen, self.classes)
