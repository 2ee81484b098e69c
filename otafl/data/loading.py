"""Load the data set that a section `data` names, and choose what trains, validates and tests."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from otafl.core import custom
from otafl.core.errors import UserError
from otafl.core.settings import CustomSettings
from otafl.core.sources import Sources
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, checked


def load(source: DataSource) -> DataSet:
    """Return the data set that a section `data` names, split as it asks, the same for every trial.

    The test set is chosen, then the first `train_samples` of the training samples are kept, then
    the last share of those is held out for validation. With `test: per_device` the test samples
    come after the training samples, and each trial's devices have their own. Raises UserError if it
    cannot be had.
    """
    data = checked(source.read(), source.name)
    if source.test == "train_tail":
        data = _tail_as_test(data)
    if source.train_samples is not None:
        count = len(data.y_train)
        if source.train_samples > count:
            raise UserError(
                f"data.train_samples: {source.train_samples} is more than the {count} training "
                "samples there are"
            )
        data = _first(data, source.train_samples)
    if source.test == "per_device":
        return _pooled(data)
    return _hold_out(data, source.validation) if source.validation > 0 else data


def loaded(source: DataSource) -> DataSet:
    """Return `load`'s data set. The last two are kept: the stacks of a sweep share them."""
    own: Sources = {}
    if isinstance(source, CustomSettings):
        own = custom.source(source.name, "data.name")
    return _kept(source, tuple(own.items()))


@functools.lru_cache(maxsize=2)
def _kept(source: DataSource, files: tuple[tuple[str, str], ...]) -> DataSet:
    """Return the data set of a section, which a module of the user's may have read."""
    return load(source)


def _first(data: DataSet, keep: int) -> DataSet:
    """Keep the first training samples only."""
    owner = None if data.owner is None else data.owner[:keep]
    return replace(data, x_train=data.x_train[:keep], y_train=data.y_train[:keep], owner=owner)


def _tail_as_test(data: DataSet) -> DataSet:
    """Make the last training samples the test samples, as many as there are now."""
    count = len(data.y_train)
    keep = count - len(data.y_test)
    if keep < 1:
        raise UserError(
            f"data.test: train_tail takes {len(data.y_test)} of the {count} training samples; "
            "none would be left, use official"
        )
    return replace(
        _first(data, keep),
        x_test=data.x_train[keep:],
        y_test=data.y_train[keep:],
        owner_test=None if data.owner is None else data.owner[keep:],
    )


def _pooled(data: DataSet) -> DataSet:
    """Make all samples training samples, those of the test set last."""
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
    """Make the last share of the training samples the validation samples."""
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
