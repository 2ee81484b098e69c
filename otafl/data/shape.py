"""The shape of a data set, before or after it is read."""

from __future__ import annotations

from typing import NamedTuple

from otafl.data.base import DataSource
from otafl.data.loading import load_cached, split_declared


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
