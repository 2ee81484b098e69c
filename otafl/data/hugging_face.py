"""Images or vectors of Hugging Face's library `datasets`, by path or name.

A path is a folder that `save_to_disk` wrote, or one of Parquet, CSV, JSON or image files.
`owner/name` is a data set of the Hugging Face hub. The library downloads it to its own cache when
it is first read, unless HF_HUB_OFFLINE=1. Code of a data set is not run: the library cannot do so
since version 4.

Grey images give x [n, height, width], colour images [n, 3, height, width] and lists of numbers [n,
*shape]. The package datasets is needed: `pip install 'otafl[hf]'`.

References
----------
Lhoest et al. 2021, "Datasets: A Community Library for Natural Language Processing", EMNLP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.arrays import to_single
from otafl.core.errors import AbsentDataError, UserError
from otafl.core.packages import import_extra
from otafl.core.suggestions import format_suggestion
from otafl.data.base import DataSource
from otafl.data.dataset import Bytes, DataSet, Indices
from otafl.data.pixels import Scale, scale_images

_GREY = ("1", "L", "LA")
"""Pillow's modes without colour. The modes of `_DEEP` have more than one byte per pixel."""
_DEEP = ("I", "I;16", "I;16B", "F")


class HuggingFace(DataSource):
    """Data set with a column of images or lists of numbers, and a column of labels."""

    example: ClassVar = {"data.dataset": "ylecun/mnist"}

    name: Literal["hf"] = "hf"
    dataset: str = Field(min_length=1)
    """path of a folder, or name on the Hugging Face hub"""
    config: str | None = None
    """configuration of a data set that has several"""
    revision: str | None = None
    """commit or tag of a data set on the hub; the newest if not given"""
    train_split: str = "train"
    """split with the training samples"""
    test_split: str = "test"
    """split with the test samples"""
    image: str = "image"
    """column of the images or lists of numbers"""
    label: str = "label"
    """column of the labels"""
    user: str | None = None
    """column with the user of each sample, for partition natural"""
    pixel_scale: Scale = "unit"
    """scale of the pixels: unit, [0, 1]; raw, 0 to 255; signed, [-1, 1]; standardised, over all
    pixels together; lists of numbers are not scaled"""

    @property
    def has_users(self) -> bool:  # type: ignore[override]
        return self.user is not None

    def read(self) -> DataSet:
        splits = open_splits(self.name, self.dataset, self.config, self.revision)
        train = _split(splits, self.train_split, "train_split")
        test = _split(splits, self.test_split, "test_split")
        check_column(train, self.image, "image")
        check_column(train, self.label, "label")
        x_train, x_test = (self._read_samples(part, self.image) for part in (train, test))
        y_train, y_test, classes = _encode_labels(train, test, self.label)
        owner, owner_test = None, None
        if self.user is not None:
            check_column(train, self.user, "user")
            owner, owner_test, _ = _encode_values(train[self.user], test[self.user])
        if x_train.dtype == np.uint8:
            x_train, x_test = scale_images(x_train, x_test, self.pixel_scale)
        return DataSet(
            x_train,
            y_train,
            x_test,
            y_test,
            classes,
            owner=owner,
            owner_test=owner_test,
        )

    def _read_samples(self, part: Any, column: str) -> Any:
        """Return the images [n, ...] uint8 or vectors [n, *shape] float32 of a split."""
        kind = part.features[column]
        if type(kind).__name__ == "Image":
            return read_pixels(part[column], column)
        try:
            vectors = np.asarray(part.with_format("numpy")[column][:])
        except (TypeError, ValueError):  # lists of several lengths, or not of numbers
            vectors = np.empty(0)
        if vectors.ndim < 2 or vectors.dtype.kind not in "biuf":
            raise UserError(
                f"data.image: the column {column!r} contains {_get_column_types(part)[column]}; "
                "must be images, or lists of equally many numbers"
            )
        return to_single(vectors, f"data.image: the column {column!r}", "values")


def open_splits(
    source: str, dataset: str, config: str | None = None, revision: str | None = None
) -> Any:
    """Open a data set of the library `datasets`.

    Parameters
    ----------
    source : str
        Name of the data source, for messages.
    dataset : str
        Path of a folder, or name on the Hugging Face hub.
    config, revision : str, optional
        Configuration of a data set that has several, and commit or tag of one on the hub.

    Returns
    -------
    dict of str to datasets.Dataset
        Splits by name.

    Raises
    ------
    UserError
        If the library cannot read the data set; AbsentDataError if the library is missing, or the
        hub cannot be reached.
    """
    try:
        datasets = import_extra(f"data.name: {source!r}", "hf", "datasets")
    except UserError as error:
        raise AbsentDataError(str(error)) from error
    path = Path(dataset).expanduser()
    # a bare name can also be a reader of the library, which unpickles
    if not path.exists() and not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        raise UserError(
            f"data.dataset: {dataset!r} is neither an existing folder nor the name of a "
            "data set of the Hugging Face hub, owner/name, such as ylecun/mnist"
        )
    try:
        if any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(str(path))
        else:
            where = str(path.absolute()) if path.exists() else dataset
            found = datasets.load_dataset(where, config, revision=revision)
    except Exception as error:  # from the network, the files or the library
        said = " ".join(str(error).split())[:300]
        is_offline = isinstance(error, ConnectionError) and not path.exists()
        raise (AbsentDataError if is_offline else UserError)(
            f"data.dataset: {dataset!r} cannot be read ({type(error).__name__}: {said}); "
            "must be the path of a folder or the name of a data set of the Hugging Face hub"
        ) from error
    return found if isinstance(found, dict) else {"train": found}


def read_pixels(images: Iterable[Any], column: str) -> Bytes:
    """Read images of one size.

    Parameters
    ----------
    images : iterable of PIL.Image.Image
        The images, at least one; the first decides whether all are grey or coloured.
    column : str
        Their column, for messages.

    Returns
    -------
    ndarray, uint8 [n, height, width] or [n, 3, height, width]
        Pixels of grey or colour images.

    Raises
    ------
    UserError
        If images have several sizes or more than 8 bits per colour.
    """
    grey, wanted, out = None, None, []
    for image in images:
        if image.mode in _DEEP:
            raise UserError(
                f"data.image: the images of the column {column!r} have more than 8 bits per "
                f"colour (Pillow's mode {image.mode}); convert them to 8 bits"
            )
        grey = image.mode in _GREY if grey is None else grey
        size = image.size[::-1]
        wanted = wanted or size
        if size != wanted:
            raise UserError(
                f"data.image: the images of the column {column!r} have several sizes, "
                f"{list(wanted)} and {list(size)}; resize them to one before they are saved"
            )
        out.append(np.asarray(image.convert("L" if grey else "RGB"), np.uint8))
    pixels = np.stack(out)
    return pixels if grey else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _split(found: Any, name: str, key: str) -> Any:
    """Return the split that a key names."""
    if name not in found:
        hint = format_suggestion(name, found) or ";"
        raise UserError(
            f"data.{key}: no split {name!r}{hint} splits: {', '.join(found)}; name one, or save "
            "the data set with two splits"
        )
    return found[name]


def _get_column_types(part: Any) -> dict[str, str]:
    """Return the columns of a split and their types."""
    kinds = {name: type(kind).__name__ for name, kind in part.features.items()}
    return {n: part.features[n].dtype if kind == "Value" else kind for n, kind in kinds.items()}


def check_column(part: Any, name: str, key: str) -> None:
    """Raise UserError if the column that a key names does not exist."""
    if name not in part.features:
        hint = format_suggestion(name, part.features) or ";"
        columns = ", ".join(f"{one} ({kind})" for one, kind in _get_column_types(part).items())
        raise UserError(f"data.{key}: no column {name!r}{hint} columns: {columns}")


def _encode_labels(train: Any, test: Any, column: str) -> tuple[Indices, Indices, int]:
    """Return the labels of both splits as numbers from 0 on, and the number of classes.

    The number of classes is that of the column, or else the largest label plus one; texts are
    numbered.
    """
    kind = train.features[column]
    y_train, y_test = (np.asarray(part[column][:]) for part in (train, test))
    kinds = {y_train.dtype.kind, y_test.dtype.kind} if y_train.ndim == 1 else set()
    if kinds == {"U"}:
        return _encode_values(y_train, y_test)
    if not kinds or not kinds <= set("iub"):
        raise UserError(
            f"data.label: the column {column!r} contains {_get_column_types(train)[column]}, or "
            "nothing in some rows; must be whole numbers or texts"
        )
    y_train, y_test = (y.astype(np.int64) for y in (y_train, y_test))
    least = min(y.min(initial=0) for y in (y_train, y_test))
    if least < 0:
        raise UserError(
            f"data.label: the column {column!r} has labels of {least}, which mark samples without "
            "a label; use another split"
        )
    most = max(y.max(initial=0) for y in (y_train, y_test))
    return y_train, y_test, int(getattr(kind, "num_classes", most + 1))


def _encode_values(train: Any, test: Any) -> tuple[Indices, Indices, int]:
    """Convert the values of both splits to numbers from 0 on, equal ones alike, and count them."""
    train, test = (np.asarray(part[:]) for part in (train, test))
    values, places = np.unique(np.concatenate([train, test]), return_inverse=True)
    return places[: len(train)], places[len(train) :], len(values)
