"""Read 5,875 voice recordings of 42 people with Parkinson's disease, and their symptom score.

Sixteen voice features predict the score (UPDRS) of the day, in the columns of UCI's file
parkinsons_updrs.data. A person is a user: with partition `natural`, a device. The recordings of a
person are in the order of time, and the last of them test: the first part of each person trains.
Features and score are standardised by the training part.

The score was interpolated linearly between three examinations, so a person's mean explains 92 % of
its variance, and a person's line in time 98 %. Two features are three times two others (DDP of RAP,
DDA of APQ3) and are left out.

References
----------
Tsanas, Little, McSharry, Ramig 2009, "Accurate Telemonitoring of Parkinson's Disease Progression by
    Noninvasive Speech Tests", UCI repository, CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.files import Download, Files, Root, wrap_read_errors
from otafl.losses.base import Labels

_FILE = "parkinsons_updrs.data"
_PERSON, _TIME = "subject#", "test_time"
_FEATURES = (
    *("Jitter(%)", "Jitter(Abs)", "Jitter:RAP", "Jitter:PPQ5"),
    *("Shimmer", "Shimmer(dB)", "Shimmer:APQ3", "Shimmer:APQ5", "Shimmer:APQ11"),
    *("NHR", "HNR", "RPDE", "DFA", "PPE"),
)


class Parkinsons(DataSource):
    """Samples x [n, 14] and scores y [n, 1], by person in the order of time."""

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
    )
    has_users: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = "values"
    default_loss: ClassVar[str] = "squared"
    input_shape: ClassVar[tuple[int, ...]] = (len(_FEATURES),)
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

    def read(self) -> DataSet:
        path = self.files.locate(self.name, self.root) / _FILE
        table = _read_table(path, (_PERSON, _TIME, self.target, *_FEATURES))
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
        x = np.stack([table[name][order] for name in _FEATURES], 1)
        y = table[self.target][order][:, None]
        x, y = (_standardise(values, train).astype(np.float32) for values in (x, y))
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
    import pandas as pd  # type: ignore[import-untyped]  # a third of a second, also of --help

    with (
        wrap_read_errors(path, "not a CSV file", ValueError),  # also no text, or no columns
        open_regular(path) as file,
    ):
        table = pd.read_csv(file, index_col=False)
    missing = [name for name in columns if name not in table]
    if missing:
        raise UserError(
            f"{path}: expected the columns of UCI's {_FILE}, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; `otafl data get parkinsons` "
            "downloads the file"
        )
    numbers = table[list(columns)].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    wrong = ~np.isfinite(numbers).all(1)
    if wrong.any() or not len(numbers):
        line = int(wrong.argmax()) + 2 if len(numbers) else 2
        raise UserError(
            f"{path}: line {line} needs a finite number in each of {len(table.columns)} columns; "
            "`otafl data get parkinsons` downloads the file"
        )
    return dict(zip(columns, numbers.T, strict=True))
