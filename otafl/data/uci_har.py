"""UCI HAR: 10,299 windows of 30 people's smartphone sensors, in six activities.

A window is 2.56 s at 50 Hz, half of which the next window repeats. Its sample is 561 features in
[-1, 1], or with `inputs: signals` the nine signals that they were computed from: acceleration of
the body, angular velocity and total acceleration, in x, y and z. A person is a user: with partition
`natural`, a device. A random quarter of each person's windows tests. With `test: official` the
windows of nine people test, and 21 people train.

`otafl data get` downloads the archive of the authors, who publish no checksum. Or unpack it into
the folder uci_har of the data. Licence: CC BY 4.0.

References
----------
Anguita, Ghio, Oneto, Parra, Reyes-Ortiz 2013, "A Public Domain Dataset for Human Activity
    Recognition using Smartphones".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.files import Download, Files, Root, wrap_read_errors

_FOLDER = "UCI HAR Dataset"
_SHAPES = {"features": (561,), "signals": (128, 9)}
_SIGNALS = [
    f"Inertial Signals/{kind}_{axis}"
    for kind in ("body_acc", "body_gyro", "total_acc")
    for axis in "xyz"
]
_SEED = 0
"""Seed of the order of the windows, the same in all trials."""


class UciHar(DataSource):
    """Windows of sensors, and the activity and person of each."""

    files: ClassVar[Files] = Files(
        "uci_har",
        "58 MB, 270 MB unpacked",
        (
            Download(
                "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/"
                "UCI%20HAR%20Dataset.zip",
                "",
                tuple(
                    f"{_FOLDER}/{part}/{name}_{part}.txt"
                    for part in ("train", "test")
                    for name in ("X", "y", "subject", *_SIGNALS)
                ),
            ),
        ),
    )
    has_users: ClassVar[bool] = True
    classes: ClassVar[int] = 6

    name: Literal["uci_har"] = "uci_har"
    root: Root = None
    partition: Any = declare_choice(
        "partition", "how samples are assigned to the devices", default="natural"
    )
    test: Literal["official", "train_tail", "per_device"] = "per_device"
    """per_device: the last `test_share` of each device's windows, which are in random order;
    official: all windows of nine people, who do not train"""
    inputs: Literal["features", "signals"] = "features"
    """features: 561 numbers computed from a window; signals: a sequence [128, 9]"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return _SHAPES[self.inputs]

    def read(self) -> DataSet:
        folder = self.files.locate(self.name, self.root) / _FOLDER
        x_train, y_train, owner = self._read_part(folder / "train", "train")
        x_test, y_test, owner_test = self._read_part(folder / "test", "test")
        data = DataSet(
            *(x_train, y_train, x_test, y_test, self.classes), owner=owner, owner_test=owner_test
        )
        order = np.random.default_rng(_SEED).permutation  # a person's activities are in turn
        return data.select_train(order(len(y_train))).select_test(order(len(y_test)))

    def _read_part(self, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read the samples [n, *shape], classes [n] and people [n] of a part of the data."""
        names = ["y", "subject", *(["X"] if self.inputs == "features" else _SIGNALS)]
        tables = [_read_numbers(folder / f"{name}_{part}.txt") for name in names]
        y, person = (table[:, 0].astype(np.int64) - 1 for table in tables[:2])
        widths = [1, 1] + [self.input_shape[0]] * (len(names) - 2)
        for name, table, width in zip(names, tables, widths, strict=True):
            if table.shape != (len(y), width):
                raise UserError(
                    f"{folder}: expected {len(y)} lines of {width} numbers in {name}_{part}.txt, "
                    f"as y_{part}.txt has lines, got {table.shape[0]} lines of {table.shape[1]}; "
                    "`otafl data get uci_har` downloads the files"
                )
        return np.stack(tables[2:], 2).reshape(len(y), *self.input_shape), y, person


def _read_numbers(path: Path) -> np.ndarray:
    """Read a file of lines with as many numbers each, [n, width]; UserError for another file."""
    with wrap_read_errors(path, "not lines of numbers", ValueError), open_regular(path) as file:
        return np.loadtxt(file, np.float32, ndmin=2)
