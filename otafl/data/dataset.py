"""Data set in memory, and the checks of a user-defined one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
"""[n]: indices of samples, labels or users."""


@dataclass(frozen=True)
class DataSet:
    """Training, test and validation samples.

    Parameters
    ----------
    x_train, x_test, x_validation : ndarray, float32 [n, *input_shape]
        Samples; no validation samples by default.
    y_train, y_test, y_validation : ndarray, int64 [n]
        Labels from 0 to classes - 1.
    classes : int
        Number of classes.
    owner, owner_test : ndarray, int64 [n], optional
        User of each training and test sample, if the data have users.
    black : ndarray, float32, optional
        Value of a black pixel, in a shape that broadcasts to a sample, for the padding of augmented
        images; 0 if not given.
    """

    x_train: Floats
    y_train: Indices
    x_test: Floats
    y_test: Indices
    classes: int
    x_validation: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    y_validation: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    owner: Indices | None = None
    owner_test: Indices | None = None
    black: Floats | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]


def check_dataset(data: Any, name: str) -> DataSet:
    """Check a data set and convert its arrays to their dtypes.

    Parameters
    ----------
    data : DataSet
        Result of reading a source.
    name : str
        Name of the source, for messages.

    Returns
    -------
    DataSet
        The data set with float32 samples and int64 labels.

    Raises
    ------
    UserError
        If a shape, a label or the type is wrong.
    """
    if not isinstance(data, DataSet):
        raise UserError(
            f"data.name: {name!r} returned {type(data).__name__}; expected otafl.data.DataSet"
        )
    shape = np.shape(data.x_train)[1:]
    parts: dict[str, Any] = {}
    for part in ("train", "test", "validation"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        if part == "validation" and np.size(x) == np.size(y) == 0:
            x, y = np.empty((0, *shape)), np.empty(0)
        parts[f"x_{part}"], parts[f"y_{part}"] = _check_part(
            f"data.name: {name!r}: {part}", x, y, shape, data.classes
        )
    for part in ("train", "test"):
        if not len(parts[f"y_{part}"]):
            raise UserError(f"data.name: {name!r} has no {part} samples")
    for owner, labels in (("owner", "y_train"), ("owner_test", "y_test")):
        users = getattr(data, owner)
        if users is not None and np.shape(users) != parts[labels].shape:
            raise UserError(
                f"data.name: {name!r}: {owner} has shape {list(np.shape(users))}; expected one "
                f"user for each of the {len(parts[labels])} samples"
            )
    return replace(data, **parts)


def _check_part(
    label: str, x: Any, y: Any, shape: tuple[int, ...], classes: int
) -> tuple[Floats, Indices]:
    """Check samples and labels against the shape of a sample, and convert their dtypes."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape[:1] != y.shape or x.shape[1:] != shape:
        raise UserError(
            f"{label} shapes disagree: x is {list(x.shape)} and y is {list(y.shape)}; expected x "
            f"[n, {', '.join(map(str, shape))}] as in training, and y [n]"
        )
    labels = y.astype(np.int64)
    if not np.array_equal(labels, y):
        raise UserError(f"{label} labels must be whole numbers, got dtype {y.dtype}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise UserError(
            f"{label} labels must be in 0..{classes - 1} for {classes} classes, got "
            f"{labels.min()}..{labels.max()}"
        )
    return np.ascontiguousarray(x, np.float32), labels
