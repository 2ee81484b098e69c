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
_SIGNALS = [f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]
_FILES = ["X", "y", "subject", *(f"Inertial Signals/{signal}" for signal in _SIGNALS)]
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
                    for name in _FILES
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
        generator = np.random.default_rng(_SEED)
        parts = []
        for part in ("train", "test"):
            x, y, person = self._read_part(folder / part, part)
            order = generator.permutation(len(y))  # a person's activities are one after the other
            parts.append((x[order], y[order], person[order]))
        (x_train, y_train, owner), (x_test, y_test, owner_test) = parts
        return DataSet(
            *(x_train, y_train, x_test, y_test, self.classes), owner=owner, owner_test=owner_test
        )

    def _read_part(self, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read the samples [n, *shape], classes [n] and people [n] of a part of the data."""
        y, person = (
            _read_numbers(folder / f"{name}_{part}.txt", 1).astype(np.int64)[:, 0] - 1
            for name in ("y", "subject")
        )
        names = ["X"] if self.inputs == "features" else _FILES[3:]
        width = self.input_shape[0]
        x = np.stack([_read_numbers(folder / f"{n}_{part}.txt", width, len(y)) for n in names], 2)
        if len(person) != len(y) or not ((y >= 0) & (y < self.classes)).all():
            raise UserError(
                f"{folder}: expected a person and an activity from 1 to {self.classes} for each "
                f"window, got {len(person)} people, and {len(y)} activities from {y.min() + 1} to "
                f"{y.max() + 1}; `otafl data get uci_har` downloads the files"
            )
        return x.reshape(len(y), *self.input_shape), y, person


def _read_numbers(path: Path, width: int, rows: int | None = None) -> np.ndarray:
    """Read a file of lines with `width` numbers each, [n, width].

    Raises UserError for a file with other lines, or not with so many rows.
    """
    with wrap_read_errors(path, "not lines of numbers", ValueError), open_regular(path) as file:
        values = np.loadtxt(file, np.float32, ndmin=2)
    if values.shape[1] != width or not len(values) or rows not in (None, len(values)):
        raise UserError(
            f"{path}: expected {'a window' if rows is None else f'{rows} windows'} of {width} "
            f"numbers a line, got {len(values)} lines of {values.shape[1]}; `otafl data get "
            "uci_har` downloads the file"
        )
    return values
