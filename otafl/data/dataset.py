"""Data set in memory, and the checks of a user-defined one."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.arrays import refuse_wrong, to_numbers, to_single
from otafl.core.errors import UserError
from otafl.losses.base import Labels

Floats = NDArray[np.float32]
Labelled = NDArray[Any]
"""[n] int64 classes, [n, outputs] float32 values, or [n, length] int64 tokens."""
Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
"""[n]: indices of samples, labels or users."""

_SAMPLES = "real numbers, such as x.astype(float), or real and imaginary parts as features"
_LABELS = "whole numbers from 0, as np.unique(labels, return_inverse=True) gives for texts"
"""Expected samples and labels, for messages."""


@dataclass(frozen=True)
class DataSet:
    """Training, test and validation samples.

    Arrays of other types are converted, and real numbers rounded to float32. Numbers that are not
    finite in float32, whole numbers beyond 2**24 and masked values are refused.

    Parameters
    ----------
    x_train : ndarray, float32 [n, *input_shape]
        Training samples.
    y_train : ndarray
        Their labels: int64 [n] from 0 to classes - 1, float32 [n, outputs] values that a regression
        predicts, or int64 [n, length] next tokens of sequences of tokens.
    x_test, y_test : ndarray
        Test samples and their labels, in the same form.
    classes : int
        Number of classes; of tokens the vocabulary; of values it is set to the outputs.
    x_validation, y_validation : ndarray, optional
        Validation samples and their labels, in the same form; none by default.
    owner, owner_test : ndarray, int64 [n], optional
        User of each training and test sample, if the data have users.
    time, time_test : ndarray, float64 [n], optional
        Time of each training and test sample, if it is known.
    x_server, y_server : ndarray, optional
        Samples that the server holds and no device, and their labels, if `data.server` asks for
        them.
    """

    x_train: Floats
    y_train: Labelled
    x_test: Floats
    y_test: Labelled
    classes: int = 0
    x_validation: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    y_validation: Labelled = field(default_factory=lambda: np.empty(0, np.int64))
    owner: Indices | None = None
    owner_test: Indices | None = None
    time: NDArray[np.float64] | None = None
    time_test: NDArray[np.float64] | None = None
    x_server: Floats | None = None
    y_server: Labelled | None = None

    @property
    def labels(self) -> Labels:
        """The kind of the labels."""
        return find_label_kind(self.y_train)

    @property
    def class_labels(self) -> Indices:
        """The classes of the training samples [n], all 0 where labels are no classes."""
        if self.labels == "classes":
            return self.y_train
        return np.zeros(len(self.y_train), np.int64)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    @functools.cached_property
    def fingerprint(self) -> str:
        """CRC-32 of the arrays and their shapes, which detects accidents, at 1 GB a second."""
        found = 0
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                found = zlib.crc32(str(value.shape).encode(), found)
                bare = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
                found = zlib.crc32(bare.data, found)
        return f"{found:08x}"

    def select_train(self, rows: Any) -> DataSet:
        """Return the data set with some training samples, by a slice, a mask or indices."""
        return self._select(rows, "x_train", "y_train", "owner", "time")

    def select_test(self, rows: Any) -> DataSet:
        """Return the data set with some test samples, by a slice, a mask or indices."""
        return self._select(rows, "x_test", "y_test", "owner_test", "time_test")

    def _select(self, rows: Any, *names: str) -> DataSet:
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{name: one[rows] for name, one in arrays.items() if one is not None})


def find_label_kind(y: Any) -> Labels:
    """Return the kind of labels: values are real numbers [n, outputs], tokens whole ones."""
    if np.ndim(y) < 2:
        return "classes"
    return "values" if np.asarray(y).dtype.kind == "f" else "tokens"


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
    label = f"data.name: {name!r}"
    arrays = {part: _to_arrays(data, label, part) for part in ("train", "test")}
    x_train, y_train = arrays["train"]
    kind, shape, ends = find_label_kind(y_train), x_train.shape[1:], y_train.shape[1:]
    if not shape:
        raise UserError(
            f"{label}: samples are single numbers, x is {list(x_train.shape)}; expected "
            "[n, features], such as x[:, None]"
        )
    arrays["validation"] = np.empty((0, *shape)), np.empty((0, *ends), y_train.dtype)
    if any(one is not None and len(one) for one in (data.x_validation, data.y_validation)):
        arrays["validation"] = _to_arrays(data, label, "validation")
    classes = _check_num_classes(label, data.classes, kind, shape, y_train)
    parts: dict[str, Any] = {"classes": classes}
    for part, (x, y) in arrays.items():
        if x.shape[:1] != y.shape[:1] or x.shape[1:] != shape or y.shape[1:] != ends:
            raise UserError(
                f"{label}: {part} shapes disagree: x is {list(x.shape)} and y is {list(y.shape)}; "
                f"expected x [n, {', '.join(map(str, shape))}] as in training, and y "
                f"[{', '.join(map(str, ('n', *ends)))}]"
            )
        parts[f"x_{part}"] = to_single(x, label, f"{part} values")
        if kind == "tokens":
            _to_whole(x, label, f"{part} tokens", classes)
        parts[f"y_{part}"] = (
            to_single(y, label, f"{part} labels", ("sample", "output"))
            if kind == "values"
            else _to_whole(y, label, f"{part} labels", classes)
        )
    for about, part, noun, kinds in (
        *(("owner", "train", "user", "iu"), ("owner_test", "test", "user", "iu")),
        *(("time", "train", "time", "iuf"), ("time_test", "test", "time", "iuf")),
    ):
        if getattr(data, about) is None:
            continue
        wanted = f"numbers, as np.unique({noun}s, return_inverse=True) gives them"
        column = to_numbers(getattr(data, about), f"{label}: {about}", wanted, kinds)
        if column.shape != arrays[part][1].shape[:1]:
            raise UserError(
                f"{label}: {about} has shape {list(column.shape)}; expected one {noun} for each of "
                f"the {len(arrays[part][1])} samples"
            )
        refuse_wrong(~np.isfinite(column), column, label, about, "not finite", wanted)
        parts[about] = column
    return replace(data, **parts)


def _to_arrays(data: DataSet, label: str, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the samples and labels of a part as arrays of numbers, which are not empty."""
    x = to_numbers(getattr(data, f"x_{part}"), f"{label}: {part} samples", _SAMPLES)
    y = to_numbers(getattr(data, f"y_{part}"), f"{label}: {part} labels", _LABELS)
    if not x.size or not y.size:
        raise UserError(f"{label} has no {part} samples: x is {list(x.shape)}, y {list(y.shape)}")
    return x, y


def _check_num_classes(
    label: str, classes: Any, kind: Labels, shape: tuple[int, ...], y: NDArray[Any]
) -> int:
    """Check the number of classes, and the shape of labels that are no classes."""
    if kind == "values":
        if y.ndim > 2 or classes not in (0, y.shape[1]):
            raise UserError(
                f"{label}: labels are real numbers {list(y.shape)}, and classes is {classes}; "
                "expected values [n, outputs] without classes, or whole numbers [n]"
            )
        return y.shape[1]
    if kind == "tokens" and shape != y.shape[1:]:
        raise UserError(
            f"{label}: labels are whole numbers {list(y.shape)}; expected classes [n], such as "
            f"y[:, 0], next tokens in the shape of a sample, {list(shape)}, or values, "
            "y.astype(float)"
        )
    if not isinstance(classes, int | np.integer) or classes < 1:
        raise UserError(f"{label}: classes is {classes!r}; expected their number, at least 1")
    return int(classes)


def _to_whole(y: NDArray[Any], label: str, noun: str, classes: int) -> Indices:
    """Convert classes or tokens to int64. Raises UserError if one is not in 0..classes - 1."""
    wrong = ~((y >= 0) & (y < classes) & (y == np.floor(y)))
    fault = f"outside the whole numbers 0..{classes - 1}"
    wanted = f"expected {classes} classes from 0; values to predict have the shape [n, outputs]"
    refuse_wrong(wrong, y, label, noun, fault, wanted, ("sample", "position"))
    return np.ascontiguousarray(y, np.int64)
