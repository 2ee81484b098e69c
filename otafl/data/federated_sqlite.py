"""Reader of the data sets of TensorFlow Federated.

A data set is an SQLite file with the tables `client_metadata` (client_id, split_name, num_examples)
and `examples` (split_name, client_id, serialized_example_proto), which has a row for each sample. A
sample is a `tf.train.Example` in the wire format of protocol buffers. This module reads the part of
the format that it needs: Example {1: Features {1: map of name 1 to Feature 2}}, where a Feature is
floats {2: {1: packed}} or whole numbers {3: {1: packed}}.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError
from otafl.data.dataset import Floats, Indices

_LENGTH, _VARINT, _FLOAT = 2, 0, 5  # wire types
_NUMBERS = {2: "floats", 3: "integers"}  # fields of a Feature


class FederatedFile:
    """Open file of TensorFlow Federated, a context manager.

    Parameters
    ----------
    path : Path
        File to open, read-only.

    Raises
    ------
    UserError
        From its methods, if the file is not one of TensorFlow Federated.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)

    def __enter__(self) -> FederatedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def count_samples(self, splits: Sequence[str]) -> dict[str, int]:
        """Count the samples of each client that occurs in all splits, over these splits."""
        marks = ", ".join("?" * len(splits))
        rows = self._run_query(
            "SELECT client_id, SUM(num_examples) FROM client_metadata WHERE split_name IN "
            f"({marks}) GROUP BY client_id HAVING COUNT(*) = {len(splits)} ORDER BY client_id",
            splits,
        )
        sizes = {str(client): int(count) for client, count in rows}
        if not sizes:
            raise UserError(f"{self.path}: no client has samples in {' and '.join(splits)}")
        return sizes

    def read_images(self, split: str, client: str, pixels: int) -> tuple[Floats, Indices]:
        """Read a client's "pixels" [n, pixels] and "label" [n]."""
        rows = self._run_query(
            "SELECT serialized_example_proto FROM examples WHERE split_name = ? AND client_id = ? "
            "ORDER BY rowid",
            (split, client),
        )
        x, y = [], []
        for (message,) in rows:
            where = f"{self.path}: a sample of client {client!r} in {split}"
            try:
                features = dict(_parse_features(memoryview(message)))
                image, label = features["pixels"], features["label"]
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise UserError(f"{where} is not a tf.train.Example with pixels, label") from error
            if image.shape != (pixels,) or label.shape != (1,):
                raise UserError(
                    f"{where} has {image.size} pixels and {label.size} labels; must be {pixels} "
                    "and 1"
                )
            x.append(image)
            y.append(int(label[0]))
        return np.array(x, np.float32).reshape(-1, pixels), np.array(y, np.int64)

    def _run_query(self, query: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        try:
            return self._file.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise UserError(
                f"{self.path}: not a data set of TensorFlow Federated: {error}"
            ) from error


def _parse_features(message: memoryview) -> Iterator[tuple[str, Floats | Indices]]:
    """Yield name and values of each numeric feature."""
    for number, features in _parse_fields(message):
        if number != 1:
            continue
        for _, entry in _parse_fields(features):
            pair = dict(_parse_fields(entry))
            for kind, values in _parse_fields(pair[2]):
                if kind in _NUMBERS:
                    numbers = (number for one, number in _parse_fields(values) if one == 1)
                    decode = _parse_floats if _NUMBERS[kind] == "floats" else _parse_integers
                    yield bytes(pair[1]).decode(), np.concatenate([decode(n) for n in numbers])


def _parse_floats(packed: memoryview) -> Floats:
    return np.frombuffer(packed, "<f4")


def _parse_integers(packed: memoryview) -> Indices:
    values, at = [], 0
    while at < len(packed):
        value, at = _parse_varint(packed, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return np.array(values, np.int64)


def _parse_fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and bytes of each field of a message.

    A number outside a packed field is returned as the bytes that it has in a packed one.
    """
    at = 0
    while at < len(message):
        key, at = _parse_varint(message, at)
        start = at
        if key & 7 == _LENGTH:
            length, start = _parse_varint(message, at)
            at = start + length
        elif key & 7 == _VARINT:
            _, at = _parse_varint(message, at)
        elif key & 7 == _FLOAT:
            at += 4
        else:
            raise ValueError(f"wire type {key & 7}")
        if at > len(message):
            raise ValueError("truncated")
        yield key >> 3, message[start:at]


def _parse_varint(message: memoryview, offset: int) -> tuple[int, int]:
    """Return a whole number, seven bits a byte with the lowest first, and the offset after it."""
    value = shift = 0
    while True:
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
