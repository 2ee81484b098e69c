"""Loading of the data set of a section `data`, with its training, test and validation samples."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

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
    if source.test == "train_tail":
        train, test = len(data.y_train), len(data.y_test)
        if train - test < 1:
            raise UserError(
                f"data.test: train_tail takes {test} of the {train} training samples and leaves "
                "none; use official"
            )
        tail = data.select_train(slice(train - test, None))
        data = replace(
            data.select_train(slice(train - test)),
            x_test=tail.x_train,
            y_test=tail.y_train,
            owner_test=tail.owner,
            time_test=tail.time,
        )
    if source.train_samples is not None:
        if source.train_samples > len(data.y_train):
            raise UserError(
                f"data.train_samples: got {source.train_samples}; must be at most "
                f"{len(data.y_train)}, the number of training samples"
            )
        data = data.select_train(slice(source.train_samples))
    if source.server is not None:
        data = withhold(source.server, data)
    if source.test == "per_device":
        return _pool_splits(data)
    if source.validation == 0:
        return data
    if len(data.y_validation):
        raise UserError(
            f"data.validation: the data set has {len(data.y_validation)} validation samples of "
            "its own; leave the key out"
        )
    total = len(data.y_train)
    held = round(source.validation * total)
    if held < 1 or total - held < 1:
        raise UserError(
            f"data.validation: {source.validation} of {total} training samples leaves "
            f"{total - held} for training and {held} for validation; each needs at least one"
        )
    aside = data.select_train(slice(total - held, None))  # the last ones
    return replace(
        data.select_train(slice(total - held)),
        x_validation=aside.x_train,
        y_validation=aside.y_train,
    )


def load_cached(source: DataSource) -> DataSet:
    """Load a data set as `load` does, and cache the last two, which the stacks of a sweep share.

    A user-defined function is called in each run.
    """
    runs = (sources.get_run(),) if isinstance(source, CustomPart) else ()
    return _load_from_cache(source, *runs)


def compute_fingerprint(source: DataSource) -> str:
    """Return the checksum of the samples, which shows whether two runs had the same data."""
    return load_cached(source).fingerprint


@functools.lru_cache(maxsize=2)
def _load_from_cache(source: DataSource, *run: str) -> DataSet:
    """Return the data set of a section; that of a user-defined function also depends on the run."""
    return load(source)


def _pool_splits(data: DataSet) -> DataSet:
    """Use all samples as training samples, those of the test set last."""
    if len(data.y_validation):
        raise UserError(
            f"data.test: per_device partitions all samples, but the data set has "
            f"{len(data.y_validation)} validation samples of its own; use official"
        )

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
