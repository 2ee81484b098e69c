"""Sent140: 1,600,000 positive and negative tweets of 659,775 users, as word vectors.

A tweet is positive or negative by the emoticons that it contained. `otafl data get` downloads the
authors' own file of training tweets, from which users and their test tweets are drawn as LEAF draws
them. GloVe's vectors of 50 numbers, glove.6B.50d.txt, are in the same folder and are not trained.
The file has a line for each word, with the word and its numbers. A sample is [length, 50], and zero
after the last word or for a word without a vector. 25 words take 5 kB, and a twentieth of the
tweets takes 400 MB.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
Pennington, Socher, Manning 2014, "GloVe: Global Vectors for Word Representation".
Go, Bhayani, Huang 2009, "Twitter Sentiment Classification using Distant Supervision".
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.inputs import open_regular
from otafl.data import users
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Floats
from otafl.data.files import Download, Files, Root, build_file_finder, wrap_read_errors

_TWEETS = "training.1600000.processed.noemoticon.csv"
_VECTORS = "glove.6B.50d.txt"
_WIDTH = 50
_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITY = {"0": 0, "4": 1}
_WORD = re.compile(r"[\w']+|[.,!?;]")


class Sent140(DataSource):
    """Samples x [n, length, 50], the vectors of a tweet's first words; y is 1 if it is positive."""

    files: ClassVar[Files] = Files(
        "sent140",
        "943 MB with GloVe's vectors, 410 MB unpacked",
        (
            Download(
                "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
                "sha256:004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
                (_TWEETS,),
            ),
            Download(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
                (_VECTORS,),
            ),
        ),
        build_file_finder(_VECTORS, _TWEETS),
    )
    has_users: ClassVar[bool] = True
    classes: ClassVar[int] = 2

    name: Literal["sent140"] = "sent140"
    root: Root = None
    fraction: users.Fraction = 0.05
    min_samples: users.MinSamples = 3
    sample_seed: users.SampleSeed = 0
    length: int = Field(25, ge=1)
    """number of words of a tweet; the words after it are cut off"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.length, _WIDTH

    def read(self) -> DataSet:
        folder = self.files.locate(self.name, self.root)
        tweets = [own for _, own in sorted(_read_tweets(folder / _TWEETS).items())]
        counts = [len(own) for own in tweets]
        generator = np.random.default_rng(self.sample_seed)
        chosen = []
        for index in users.draw_users(counts, self.fraction, self.min_samples, generator):
            texts, labels = zip(*tweets[index], strict=True)
            x, y = np.array(texts, object), np.array(labels, np.int64)
            chosen.append(users.split_user(x, y, generator))
        data = users.join_users(chosen, self.classes)
        train, test = (
            [tokenise(text, self.length) for text in texts] for texts in (data.x_train, data.x_test)
        )
        known = set(itertools.chain.from_iterable(train + test))
        places, table = read_vectors(folder / _VECTORS, known, _WIDTH)
        x_train, x_test = (
            _embed_tokens(part, places, table, self.length) for part in (train, test)
        )
        return replace(data, x_train=x_train, x_test=x_test)


def read_vectors(path: Path, words: Collection[str], width: int) -> tuple[dict[str, int], Floats]:
    """Read the vectors of given words from a file of GloVe.

    Parameters
    ----------
    path : Path
        File with a word and its numbers in each line.
    words : Collection of str
        Words to look up.
    width : int
        Numbers of a vector.

    Returns
    -------
    places : dict of str to int
        Row of each word found in the table.
    table : ndarray, float32 [1 + found, width]
        Vectors; row 0 is zero, for words that the file does not have.

    Raises
    ------
    UserError
        If a line is not a word and so many numbers.
    """
    places: dict[str, int] = {}
    rows = [np.zeros(width, np.float32)]
    # a ValueError means no text, no numbers, or the wrong number of them
    with (
        wrap_read_errors(path, "not a file of GloVe vectors", ValueError),
        open_regular(path) as file,
    ):
        for number, line in enumerate(file, 1):
            values = line.split(b" ")
            if len(values) != width + 1:
                raise ValueError(f"line {number} has {len(values) - 1} numbers; must be {width}")
            word = values[0].decode()
            if word in words and word not in places:
                places[word] = len(rows)
                rows.append(np.array(values[1:], np.float32))
    return places, np.stack(rows)


def tokenise(text: str, max_tokens: int) -> list[str]:
    """Return the first words and punctuation marks of a text, in lower case."""
    return list(itertools.islice((m.group() for m in _WORD.finditer(text.lower())), max_tokens))


def _embed_tokens(
    texts: list[list[str]], token_index: dict[str, int], table: Floats, length: int
) -> Floats:
    """Return the vectors of the texts' words, [n, length, width]."""
    index = np.zeros((len(texts), length), np.int64)
    for row, text in zip(index, texts, strict=True):
        row[: len(text)] = [token_index.get(word, 0) for word in text]
    return table[index]


def _read_tweets(path: Path) -> dict[str, list[tuple[str, int]]]:
    """Return user -> text and label of each tweet in the authors' file.

    The few test tweets of the authors are in another file, and have users of their own.
    """
    tweets: dict[str, list[tuple[str, int]]] = defaultdict(list)
    with (
        wrap_read_errors(path, "not a CSV file", csv.Error),
        open_regular(path) as raw,
        io.TextIOWrapper(raw, encoding="latin-1", newline="") as file,
    ):
        for number, row in enumerate(csv.reader(file), 1):
            if len(row) != len(_COLUMNS) or row[0] not in _POLARITY:
                raise UserError(
                    f"{path}: tweet {number} must be {', '.join(_COLUMNS)}, with polarity 0 or 4"
                )
            tweets[row[4]].append((row[5], _POLARITY[row[0]]))
    return tweets
