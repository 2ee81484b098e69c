"""Data set in memory, and the checks of a user-defined one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.losses.base import Labels

Floats = NDArray[np.float32]
Labelled = NDArray[Any]
"""[n] int64 classes, [n, outputs] float32 values, or [n, length] int64 tokens."""
Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
"""[n]: indices of samples, labels or users."""


@dataclass(frozen=True)
class DataSet:
    """Training, test and validation samples.

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
    black : ndarray, float32, optional
        Value of a black pixel, in a shape that broadcasts to a sample, for the padding of augmented
        images; 0 if not given.
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
    black: Floats | None = None
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
    def class_labels_test(self) -> Indices:
        """The classes of the test samples [n], all 0 where labels are no classes."""
        if self.labels == "classes":
            return self.y_test
        return np.zeros(len(self.y_test), np.int64)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]


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
    shape, ends = np.shape(data.x_train)[1:], np.shape(data.y_train)[1:]
    kind = find_label_kind(data.y_train)
    parts: dict[str, Any] = {}
    for part in ("train", "test", "validation"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        if part == "validation" and np.size(x) == np.size(y) == 0:
            x, y = np.empty((0, *shape)), np.empty((0, *ends), np.asarray(data.y_train).dtype)
        label = f"data.name: {name!r}: {part}"
        x, y = _check_shapes(label, np.asarray(x), np.asarray(y), shape, ends)
        parts[f"x_{part}"] = x
        parts[f"y_{part}"] = (
            _check_values(label, y) if kind == "values" else _check_classes(label, y, data.classes)
        )
    if kind == "values":
        parts["classes"] = ends[0]
    if kind == "tokens":
        _check_tokens(name, data.classes, shape, ends, parts)
    for part in ("train", "test"):
        if not len(parts[f"y_{part}"]):
            raise UserError(f"data.name: {name!r} has no {part} samples")
    for about, labels in (
        *(("owner", "y_train"), ("owner_test", "y_test")),
        *(("time", "y_train"), ("time_test", "y_test")),
    ):
        given = getattr(data, about)
        if given is not None and np.shape(given) != parts[labels].shape[:1]:
            raise UserError(
                f"data.name: {name!r}: {about} has shape {list(np.shape(given))}; expected one "
                f"{'user' if about.startswith('owner') else 'time'} for each of the "
                f"{len(parts[labels])} samples"
            )
    return replace(data, **parts)


def _check_shapes(
    label: str, x: Any, y: Any, shape: tuple[int, ...], ends: tuple[int, ...]
) -> tuple[Floats, Any]:
    """Check the shapes of samples and labels, and convert the samples."""
    if x.shape[:1] != y.shape[:1] or x.shape[1:] != shape or y.shape[1:] != ends:
        raise UserError(
            f"{label} shapes disagree: x is {list(x.shape)} and y is {list(y.shape)}; expected x "
            f"[n, {', '.join(map(str, shape))}] as in training, and y "
            f"[{', '.join(map(str, ('n', *ends)))}]"
        )
    return np.ascontiguousarray(x, np.float32), y


def _check_values(label: str, y: Any) -> Floats:
    values = np.ascontiguousarray(y, np.float32)
    if values.ndim != 2 or not values.shape[1] or not np.isfinite(values).all():
        raise UserError(
            f"{label} labels must be finite numbers [n, outputs], and are {list(values.shape)} "
            f"with {int((~np.isfinite(values)).sum())} that are not finite"
        )
    return values


def _check_classes(label: str, y: Any, classes: int) -> Indices:
    labels = y.astype(np.int64)
    if not np.array_equal(labels, y):
        raise UserError(
            f"{label} labels must be whole numbers, got dtype {y.dtype}; real values to predict "
            "have the shape [n, outputs]"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise UserError(
            f"{label} labels must be in 0..{classes - 1} for {classes} classes, got "
            f"{labels.min()}..{labels.max()}"
        )
    return np.ascontiguousarray(labels)


def _check_tokens(
    name: str, vocabulary: int, shape: tuple[int, ...], ends: tuple[int, ...], parts: dict[str, Any]
) -> None:
    """Check that samples are sequences of tokens, as long as their labels."""
    if shape != ends:
        raise UserError(
            f"data.name: {name!r}: y has next tokens of sequences of length {list(ends)}, and x "
            f"samples of shape {list(shape)}; wanted sequences of the same length"
        )
    for part in ("train", "test", "validation"):
        x = parts[f"x_{part}"]
        if x.size and not (0 <= x.min() <= x.max() < vocabulary and (x == np.floor(x)).all()):
            raise UserError(
                f"data.name: {name!r}: {part} tokens must be whole numbers in "
                f"0..{vocabulary - 1}, and are in {x.min():g}..{x.max():g}"
            )
