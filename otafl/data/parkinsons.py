"""Read 5,875 voice recordings of 42 people with Parkinson's disease, and their symptom score.

Sixteen voice features predict the score (UPDRS) of the day, in the columns of UCI's file
parkinsons_updrs.data. A person is a user: with partition `natural`, a device. The recordings of a
person are in the order of time, and the last of them test: the first part of each person trains.
Features and score are standardised by the training part.

The score was interpolated linearly between three examinations, so a person's mean explains 92 % of
its variance, and a person's line in time 98 %. Results therefore have the controls `mean_control`
and `line_control` beside the personal models. Two features are three times two others (DDP of RAP,
DDA of APQ3); `copies: false` leaves them out.

References
----------
Tsanas, Little, McSharry, Ramig 2009, "Accurate Telemonitoring of Parkinson's Disease Progression by
    Noninvasive Speech Tests", UCI repository, CC BY 4.0.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.inputs import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.files import Download, Files, Root, build_file_finder, wrap_read_errors
from otafl.losses.base import Labels

_FILE = "parkinsons_updrs.data"
_PERSON, _TIME = "subject#", "test_time"
_COPIES = ("Jitter:DDP", "Shimmer:DDA")
_FEATURES = (
    *("Jitter(%)", "Jitter(Abs)", "Jitter:RAP", "Jitter:PPQ5", "Jitter:DDP"),
    *("Shimmer", "Shimmer(dB)", "Shimmer:APQ3", "Shimmer:APQ5", "Shimmer:APQ11", "Shimmer:DDA"),
    *("NHR", "HNR", "RPDE", "DFA", "PPE"),
)


class Parkinsons(DataSource):
    """Samples x [n, 14], 16 with copies, and scores y [n, 1], by person in the order of time."""

    files: ClassVar[Files] = Files(
        "parkinsons",
        "1 MB",
        (
            Download(
                "https://archive.ics.uci.edu/ml/machine-learning-databases/parkinsons/"
                f"telemonitoring/{_FILE}",
                "sha256:8dd8c084e51bd21fe360f910c10fc5d590113141c4803355c11591325f22df12",
            ),
        ),
        build_file_finder(_FILE),
    )
    has_users: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = "values"
    default_loss: ClassVar[str] = "squared"
    classes: ClassVar[int] = 1
    example: ClassVar = {"model.name": "linear"}

    name: Literal["parkinsons"] = "parkinsons"
    root: Root = None
    partition: Any = declare_choice(
        "partition", "how samples are assigned to the devices", default="natural"
    )
    test: Literal["official", "train_tail", "per_device"] = "per_device"
    """per_device: each person's last recordings test, on the person's device; official: those of
    all people together"""
    test_share: float = Field(0.25, gt=0, lt=1)
    """share of a person's recordings, the last in time, that test"""
    target: Literal["motor_UPDRS", "total_UPDRS"] = "motor_UPDRS"
    """score that is predicted"""
    copies: bool = False
    """also the two features that are multiples of others"""
    with_time: bool = False
    """also the time of the recording, as a feature"""
    scale_target: bool = True
    """standardise the score too, by its mean and deviation in the training part"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (len(self._columns),)

    @property
    def _columns(self) -> tuple[str, ...]:
        kept = tuple(name for name in _FEATURES if self.copies or name not in _COPIES)
        return (*kept, _TIME) if self.with_time else kept

    def read(self) -> DataSet:
        path = self.files.locate(self.name, self.root) / _FILE
        table = _read_table(path, (_PERSON, _TIME, self.target, *self._columns))
        order = np.lexsort((table[_TIME], table[_PERSON]))
        person = np.unique(table[_PERSON][order], return_inverse=True)[1]
        counts = np.bincount(person)
        kept = ((1.0 - self.test_share) * counts).astype(np.int64)
        few = int(np.argmin(np.minimum(kept, counts - kept)))
        if not kept.min() or not (counts - kept).min():
            raise UserError(
                f"data.test_share: {self.test_share:g} of a person's {counts[few]} recordings "
                "leaves none for training or test; use a share nearer to a half"
            )
        within = np.arange(len(person)) - (np.cumsum(counts) - counts)[person]
        train = within < kept[person]
        x = np.stack([table[name][order] for name in self._columns], 1)
        y = table[self.target][order][:, None]
        x = _standardise(x, train)
        y = _standardise(y, train) if self.scale_target else y
        x, y = x.astype(np.float32), y.astype(np.float32)
        time = table[_TIME][order]
        return DataSet(
            x[train],
            y[train],
            x[~train],
            y[~train],
            owner=person[train],
            owner_test=person[~train],
            time=time[train],
            time_test=time[~train],
        )


def _standardise(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return values [n, m] with mean 0 and variance 1 over the training samples."""
    spread = values[train].std(0)
    return np.asarray((values - values[train].mean(0)) / np.where(spread > 0, spread, 1.0))


def _read_table(path: Path, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the named columns [n] of a comma-separated file.

    Raises UserError if one is missing or has something else than numbers.
    """
    with (
        wrap_read_errors(path, "not a CSV file", csv.Error, UnicodeDecodeError),
        open_regular(path) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as file,
    ):
        rows = [row for row in csv.reader(file) if row]
    head = rows[0] if rows else []
    missing = [name for name in columns if name not in head]
    if missing:
        raise UserError(
            f"{path}: expected the columns of UCI's {_FILE}, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; `otafl data get parkinsons` "
            "downloads the file"
        )
    place = [head.index(name) for name in columns]
    found = np.empty((len(rows) - 1, len(columns)))
    for number, row in enumerate(rows[1:], 2):
        try:
            found[number - 2] = [float(row[at]) for at in place]
        except (ValueError, IndexError):
            raise UserError(
                f"{path}: line {number} needs a number in each of {len(head)} columns; "
                "`otafl data get parkinsons` downloads the file"
            ) from None
    if not len(found) or not np.isfinite(found).all():
        raise UserError(f"{path}: has no recordings, or numbers that are not finite")
    return dict(zip(columns, found.T, strict=True))
