"""A data set in memory, and how the one a scenario names is loaded and split."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core import custom
from otafl.core.errors import UserError
from otafl.data.config import CustomDataConfig, DataConfig

_BUILT_IN = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "femnist", "sent140")


def _no_samples() -> NDArray[np.float32]:
    return np.empty(0, np.float32)


def _no_labels() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class DataSet:
    """x: [n, *input_shape] float32, y: [n] int64 in 0..classes-1, of the training, test and
    validation samples. No validation samples by default. owner, owner_test: [n] int64, the user
    that each training and test sample is from, where the data have users. black: what a black
    pixel is, in a shape that fits a sample (what augmentation pads images with); 0 if None."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    classes: int
    x_validation: NDArray[np.float32] = field(default_factory=_no_samples)
    y_validation: NDArray[np.int64] = field(default_factory=_no_labels)
    owner: NDArray[np.int64] | None = None
    owner_test: NDArray[np.int64] | None = None
    black: NDArray[np.float32] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.x_train.shape[1:]


def load(config: DataConfig) -> DataSet:
    """The data set that the section `data` names, split as it asks, the same for every trial: the
    test set is chosen, then the first `train_samples` of the training samples are kept, then the
    last share of those is held out for validation. With `test: per_device` the test samples come
    after the training samples, and each trial's devices have their own. UserError if it cannot be
    had."""
    return _split(_checked(_loaded(config), _name(config)), config)


def _loaded(config: DataConfig) -> Any:
    if isinstance(config, CustomDataConfig):
        return custom.call(config.name, "data.name", config.options)
    name = _name(config)
    if name not in _BUILT_IN:
        raise UserError(f"data.name: there is no loader for {name!r}")
    return importlib.import_module(f"otafl.data.{name}").load(config)


def _name(config: DataConfig) -> str:
    return str(getattr(config, "name", type(config).__name__))


def _checked(data: Any, name: str) -> DataSet:
    """The data set with its arrays in their dtypes, or a UserError that says what is wrong."""
    if not isinstance(data, DataSet):
        raise UserError(
            f"data.name: {name!r} returned {type(data).__name__}, not otafl.data.DataSet"
        )
    shape = np.shape(data.x_train)[1:]
    parts: dict[str, Any] = {}
    for part in ("train", "test", "validation"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        if part == "validation" and np.size(x) == np.size(y) == 0:
            x, y = np.empty((0, *shape)), np.empty(0)
        parts[f"x_{part}"], parts[f"y_{part}"] = _checked_part(
            f"data.name: {name!r}: {part}", x, y, shape, data.classes
        )
    for part in ("train", "test"):
        if not len(parts[f"y_{part}"]):
            raise UserError(f"data.name: {name!r} has no {part} samples")
    for owner, labels in (("owner", "y_train"), ("owner_test", "y_test")):
        users = getattr(data, owner)
        if users is not None and np.shape(users) != parts[labels].shape:
            raise UserError(
                f"data.name: {name!r}: {owner} is {list(np.shape(users))}; wanted one user for "
                f"each of the {len(parts[labels])} samples"
            )
    return replace(data, **parts)


def _checked_part(
    where: str, x: Any, y: Any, shape: tuple[int, ...], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = np.asarray(x), np.asarray(y)
    if x.shape[:1] != y.shape or x.shape[1:] != shape:
        raise UserError(
            f"{where} shapes disagree: x is {list(x.shape)} and y is {list(y.shape)}; wanted x "
            f"[n, {', '.join(map(str, shape))}] as in training, and y [n]"
        )
    labels = y.astype(np.int64)
    if not np.array_equal(labels, y):
        raise UserError(f"{where} labels must be whole numbers, the dtype is {y.dtype}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise UserError(
            f"{where} labels must be in 0..{classes - 1} for {classes} classes, and are in "
            f"{labels.min()}..{labels.max()}"
        )
    return np.ascontiguousarray(x, np.float32), labels


def _split(data: DataSet, config: DataConfig) -> DataSet:
    count = len(data.y_train)
    if config.test == "train_tail":
        keep = count - len(data.y_test)
        if keep < 1:
            raise UserError(
                f"data.test: train_tail takes {len(data.y_test)} of the {count} training samples; "
                "none would be left, use official"
            )
        tail = None if data.owner is None else data.owner[keep:]
        x_test, y_test = data.x_train[keep:], data.y_train[keep:]
        data = replace(_first(data, keep), x_test=x_test, y_test=y_test, owner_test=tail)
        count = keep
    if config.train_samples is not None:
        if config.train_samples > count:
            raise UserError(
                f"data.train_samples: {config.train_samples} is more than the {count} training "
                "samples there are"
            )
        data = _first(data, config.train_samples)
    if config.test == "per_device":
        return _pooled(data)
    return _hold_out(data, config.validation) if config.validation > 0 else data


def _first(data: DataSet, keep: int) -> DataSet:
    """With the first training samples only."""
    owner = None if data.owner is None else data.owner[:keep]
    return replace(data, x_train=data.x_train[:keep], y_train=data.y_train[:keep], owner=owner)


def _pooled(data: DataSet) -> DataSet:
    """All samples as training samples, those of the test set last."""
    if len(data.y_validation):
        raise UserError(
            f"data.test: per_device deals out all samples, and the data set brings "
            f"{len(data.y_validation)} validation samples of its own; official would do"
        )
    owner = None
    if data.owner is not None and data.owner_test is not None:
        owner = np.concatenate([data.owner, data.owner_test])
    return replace(
        data,
        x_train=np.concatenate([data.x_train, data.x_test]),
        y_train=np.concatenate([data.y_train, data.y_test]),
        x_test=data.x_test[:0],
        y_test=data.y_test[:0],
        owner=owner,
        owner_test=None,
    )


def _hold_out(data: DataSet, share: float) -> DataSet:
    """The last share of the training samples becomes the validation samples."""
    if len(data.y_validation):
        raise UserError(
            f"data.validation: the data set brings {len(data.y_validation)} validation samples of "
            "its own; leave the key out"
        )
    held = round(share * len(data.y_train))
    keep = len(data.y_train) - held
    if held < 1 or keep < 1:
        raise UserError(
            f"data.validation: {share} of {len(data.y_train)} training samples leaves {keep} for "
            f"training and {held} for validation; each needs at least one"
        )
    return replace(
        _first(data, keep),
        x_validation=data.x_train[keep:],
        y_validation=data.y_train[keep:],
    )
