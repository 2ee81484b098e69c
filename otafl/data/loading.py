"""Load the data set that a section `data` names, and choose what trains, validates and tests."""

from __future__ import annotations

import functools
import zlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from otafl.core.errors import UserError
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, check_dataset
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart
from otafl.user_code.sources import Sources


def load(source: DataSource) -> DataSet:
    """Return the data set that a section `data` names, split as it asks, the same for every trial.

    The test set is chosen, then the first `train_samples` of the training samples are kept, then
    the last share of those is held out for validation. With `test: per_device` the test samples
    come after the training samples, and each trial's devices have their own. Raises UserError if it
    cannot be had.
    """
    data = check_dataset(source.read(), source.name)
    sizes = split(source, len(data.y_train), len(data.y_test), len(data.y_validation))
    if source.test == "train_tail":
        data = _split_tail_as_test(data)
    if source.train_samples is not None:
        data = _keep_first(data, source.train_samples)
    if source.test == "per_device":
        return _pool_splits(data)
    return _split_validation(data, sizes.train) if source.validation > 0 else data


class SplitSizes(NamedTuple):
    """Count the samples that a scenario's devices train on, and those held out."""

    train: int
    validation: int


def split(source: DataSource, train: int, test: int, validation: int = 0) -> SplitSizes:
    """Return how a section splits a data set of so many samples, which need not be read for it.
    Raises UserError where it cannot be split so."""
    if source.test == "train_tail":
        if train - test < 1:
            raise UserError(
                f"data.test: train_tail takes {test} of the {train} training samples; none would "
                "be left, use official"
            )
        train -= test
    if source.train_samples is not None:
        if source.train_samples > train:
            raise UserError(
                f"data.train_samples: {source.train_samples} is more than the {train} training "
                "samples there are"
            )
        train = source.train_samples
    if source.test == "per_device":
        if validation:
            raise UserError(
                f"data.test: per_device deals out all samples, and the data set brings "
                f"{validation} validation samples of its own; official would do"
            )
        return SplitSizes(train + test, 0)
    if source.validation == 0:
        return SplitSizes(train, validation)
    if validation:
        raise UserError(
            f"data.validation: the data set brings {validation} validation samples of its own; "
            "leave the key out"
        )
    held = round(source.validation * train)
    if held < 1 or train - held < 1:
        raise UserError(
            f"data.validation: {source.validation} of {train} training samples leaves "
            f"{train - held} for training and {held} for validation; each needs at least one"
        )
    return SplitSizes(train - held, held)


def load_cached(source: DataSource) -> DataSet:
    """Return `load`'s data set. The last two are kept: the stacks of a sweep share them."""
    own: Sources = {}
    if isinstance(source, CustomPart):
        own = loading.hash_sources(source.name, "data.name")
    return _load_from_cache(source, tuple(own.items()))


def compute_fingerprint(source: DataSource) -> str:
    """Return a checksum of `load_cached`'s samples and labels, by which two runs tell whether they
    had the same; it protects from accidents only, at 1 GB a second."""
    return _hash_dataset(load_cached(source))


def _hash_dataset(data: DataSet) -> str:
    found = 0
    for value in vars(data).values():
        if isinstance(value, np.ndarray):
            found = zlib.crc32(str(value.shape).encode(), found)
            found = zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


@functools.lru_cache(maxsize=2)
def _load_from_cache(source: DataSource, files: tuple[tuple[str, str], ...]) -> DataSet:
    """Return the data set of a section, which a module of the user's may have read."""
    return load(source)


def _keep_first(data: DataSet, keep: int) -> DataSet:
    """Keep the first training samples only."""
    owner = None if data.owner is None else data.owner[:keep]
    time = None if data.time is None else data.time[:keep]
    x, y = data.x_train[:keep], data.y_train[:keep]
    return replace(data, x_train=x, y_train=y, owner=owner, time=time)


def _split_tail_as_test(data: DataSet) -> DataSet:
    """Make the last training samples the test samples, as many as there are now."""
    keep = len(data.y_train) - len(data.y_test)
    return replace(
        _keep_first(data, keep),
        x_test=data.x_train[keep:],
        y_test=data.y_train[keep:],
        owner_test=None if data.owner is None else data.owner[keep:],
        time_test=None if data.time is None else data.time[keep:],
    )


def _pool_splits(data: DataSet) -> DataSet:
    """Make all samples training samples, those of the test set last."""
    owner = None
    if data.owner is not None and data.owner_test is not None:
        owner = np.concatenate([data.owner, data.owner_test])
    time = None
    if data.time is not None and data.time_test is not None:
        time = np.concatenate([data.time, data.time_test])
    return replace(
        data,
        x_train=np.concatenate([data.x_train, data.x_test]),
        y_train=np.concatenate([data.y_train, data.y_test]),
        x_test=data.x_test[:0],
        y_test=data.y_test[:0],
        owner=owner,
        owner_test=None,
        time=time,
        time_test=None,
    )


def _split_validation(data: DataSet, keep: int) -> DataSet:
    """Make what follows the first training samples the validation samples."""
    return replace(
        _keep_first(data, keep),
        x_validation=data.x_train[keep:],
        y_validation=data.y_train[keep:],
    )
