"""Loading of the data set of a section `data`, with its training, test and validation samples."""

from __future__ import annotations

import functools
import zlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from otafl.core.errors import UserError
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, check_dataset
from otafl.data.server_samples import withhold
from otafl.user_code import sources
from otafl.user_code.custom_part import CustomPart


def load(source: DataSource) -> DataSet:
    """Load the data set that a section `data` names, with the split that it asks for.

    The split is the same for every trial. The test set is chosen first. Then the first
    `train_samples` training samples are kept, and the last share of these is set aside for
    validation. With `test: per_device`, the test samples follow the training samples, and each
    trial's devices have their own.

    Parameters
    ----------
    source : DataSource
        Section `data`.

    Returns
    -------
    DataSet
        Samples with their split.

    Raises
    ------
    UserError
        If the data set cannot be read or split.
    """
    data = check_dataset(source.read(), source.name)
    official = len(data.y_train), len(data.y_test), len(data.y_validation)
    sizes = split(source, *official)
    if source.test == "train_tail":
        keep = len(data.y_train) - len(data.y_test)
        tail, data = data.select_train(slice(keep, None)), data.select_train(slice(keep))
        data = replace(
            data,
            x_test=tail.x_train,
            y_test=tail.y_train,
            owner_test=tail.owner,
            time_test=tail.time,
        )
    if source.train_samples is not None:
        data = data.select_train(slice(source.train_samples))
    if source.server is not None:
        before = len(data.y_train)
        data = withhold(source.server, data)
        sizes = split(source, *official, before - len(data.y_train))
    if source.test == "per_device":
        return _pool_splits(data)
    if source.validation == 0:
        return data
    held = data.select_train(slice(sizes.train, None))
    return replace(
        data.select_train(slice(sizes.train)),
        x_validation=held.x_train,
        y_validation=held.y_train,
    )


class SplitSizes(NamedTuple):
    """Number of training samples of all devices, and of the validation samples set aside."""

    train: int
    validation: int


def split_declared(source: DataSource) -> SplitSizes | None:
    """Return the sizes of a section's split that the data set declares; None if it does not.

    Raises UserError as `split`.
    """
    if source.samples is None or source.server is not None:
        return None
    return split(source, *source.samples)


def split(
    source: DataSource, train: int, test: int, validation: int = 0, withheld: int = 0
) -> SplitSizes:
    """Return the sizes of a section's split, for a data set that need not be read.

    Parameters
    ----------
    source : DataSource
        Section `data`.
    train, test, validation : int
        Number of samples of the data set.
    withheld : int
        Number of training samples of the server.

    Returns
    -------
    SplitSizes
        Number of training and validation samples.

    Raises
    ------
    UserError
        If so many samples cannot be split so.
    """
    if source.test == "train_tail":
        if train - test < 1:
            raise UserError(
                f"data.test: train_tail takes {test} of the {train} training samples and leaves "
                "none; use official"
            )
        train -= test
    if source.train_samples is not None:
        if source.train_samples > train:
            raise UserError(
                f"data.train_samples: got {source.train_samples}; must be at most {train}, the "
                "number of training samples"
            )
        train = source.train_samples
    train -= withheld
    if source.test == "per_device":
        if validation:
            raise UserError(
                f"data.test: per_device partitions all samples, but the data set has {validation} "
                "validation samples of its own; use official"
            )
        return SplitSizes(train + test, 0)
    if source.validation == 0:
        return SplitSizes(train, validation)
    if validation:
        raise UserError(
            f"data.validation: the data set has {validation} validation samples of its own; "
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
    """Load a data set as `load` does, and cache the last two, which the stacks of a sweep share.

    A user-defined function is called in each run.
    """
    runs = (sources.get_run(),) if isinstance(source, CustomPart) else ()
    return _load_from_cache(source, *runs)


def compute_fingerprint(source: DataSource) -> str:
    """Compute a checksum of the samples and labels of `load_cached`.

    It shows whether two runs had the same data. It detects accidents, not intent, at 1 GB a second.
    """
    return _hash_dataset(load_cached(source))


class DataShape(NamedTuple):
    """Shape of one sample, number of classes and number of training samples."""

    input_shape: tuple[int, ...]
    classes: int
    samples: int


def read_shape(source: DataSource) -> DataShape:
    """Read a data set and return its shape."""
    samples = load_cached(source)
    return DataShape(samples.input_shape, samples.classes, len(samples.y_train))


def get_declared_shape(source: DataSource) -> DataShape | None:
    """Return the shape that a data set declares before it is read.

    Parameters
    ----------
    source : DataSource
        Section `data`.

    Returns
    -------
    DataShape, optional
        The shape, with 0 samples if only their number is unknown; None if the set declares none.

    Raises
    ------
    UserError
        If the samples cannot be split as the section asks.
    """
    if source.input_shape is None or source.classes is None:
        return None
    sizes = split_declared(source)
    return DataShape(source.input_shape, source.classes, 0 if sizes is None else sizes.train)


def _hash_dataset(data: DataSet) -> str:
    """Return the CRC-32 of all arrays and their shapes."""
    found = 0
    for value in vars(data).values():
        if isinstance(value, np.ndarray):
            found = zlib.crc32(str(value.shape).encode(), found)
            found = zlib.crc32(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


@functools.lru_cache(maxsize=2)
def _load_from_cache(source: DataSource, *run: str) -> DataSet:
    """Return the data set of a section; that of a user-defined function also depends on the run."""
    return load(source)


def _pool_splits(data: DataSet) -> DataSet:
    """Use all samples as training samples, those of the test set last."""

    def join(train: Any, test: Any) -> Any:
        return None if train is None or test is None else np.concatenate([train, test])

    return replace(
        data,
        x_train=join(data.x_train, data.x_test),
        y_train=join(data.y_train, data.y_test),
        x_test=data.x_test[:0],
        y_test=data.y_test[:0],
        owner=join(data.owner, data.owner_test),
        owner_test=None,
        time=join(data.time, data.time_test),
        time_test=None,
    )
