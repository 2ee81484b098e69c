"""Read GloVe's word vectors in their text format: a line for each word, the word and its numbers
(Pennington, Socher, Manning 2014, "GloVe: Global Vectors for Word Representation")."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otafl.data.files import reading


def read_vectors(
    path: Path, words: Collection[str], width: int
) -> tuple[dict[str, int], NDArray[np.float32]]:
    """Return the place of each of the words that the file has, and the table [1 + found, width],
    whose place 0 is zero for what it does not have. Raises UserError if a line is anything else."""
    places: dict[str, int] = {}
    rows = [np.zeros(width, np.float32)]
    # no text, no numbers, or the wrong number of them
    with reading(path, "not a file of GloVe vectors", ValueError), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            values = line.split(b" ")
            if len(values) != width + 1:
                raise ValueError(f"line {number} has {len(values) - 1} numbers, not {width}")
            word = values[0].decode()
            if word in words and word not in places:
                places[word] = len(rows)
                rows.append(np.array(values[1:], np.float32))
    return places, np.stack(rows)
