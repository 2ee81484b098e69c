"""Sent140: tweets by user, positive or negative by the emoticons that they had (Go, Bhayani, Huang
2009, "Twitter Sentiment Classification using Distant Supervision"; users as in LEAF, Caldas et al.
2018). Either LEAF's JSON files or the authors' own file of 1,600,000 training tweets; the words
become GloVe's vectors of 50 numbers and are not trained.

A sample is [length, 50]: 25 words take 5 kB, a twentieth of the tweets 400 MB.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data import leaf
from otafl.data.config import Sent140Config
from otafl.data.dataset import DataSet
from otafl.data.glove import read_vectors
from otafl.data.sources import Archives, Download, locate

_TWEETS = "training.1600000.processed.noemoticon.csv"
_VECTORS = "glove.6B.50d.txt"
_WIDTH = 50
_FRACTION = 0.05  # of the authors' file, which is whole; LEAF's files are sampled already
_TEXT = 4  # the text's place in a sample of LEAF: id, date, query, user, text
_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITY = {"0": 0, "4": 1}
_WORD = re.compile(r"[\w']+|[.,!?;]")


def _lacks(folder: Path) -> str | None:
    if not (folder / _VECTORS).is_file():
        return _VECTORS
    there = leaf.folder_of(folder) is not None or (folder / _TWEETS).is_file()
    return None if there else _TWEETS


FILES = Archives(
    "sent140",
    "sent140",
    "1,600,000 tweets by 659,775 users and GloVe's word vectors, 943 MB, 410 MB unpacked",
    (
        Download(
            "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
            "sha256:004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
            {_TWEETS: _TWEETS},
        ),
        Download(
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            {_VECTORS: _VECTORS},
        ),
    ),
    _lacks,
)


def load(config: Sent140Config) -> DataSet:
    """x [n, length, 50]: the vectors of a tweet's first words, zero for a word that GloVe does not
    have and after the last; y 1 where it is positive. UserError if a file is missing or corrupt."""
    folder = locate(FILES, config.root)
    generator = np.random.default_rng(config.sample_seed)
    made_here = leaf.folder_of(folder)
    if made_here is not None:
        users = leaf.read(made_here, _texts, generator)
        sizes = [user.size for user in users]
        chosen = leaf.sample(sizes, config.fraction or 1.0, config.min_samples, generator)
        users = [users[i] for i in chosen]
    else:
        users = _authors(folder / _TWEETS, config, generator)
    data = leaf.data_set(users, config.classes)
    train, test = (
        [words(text, config.length) for text in texts] for texts in (data.x_train, data.x_test)
    )
    known = set(itertools.chain.from_iterable(train + test))
    places, table = read_vectors(folder / _VECTORS, known, _WIDTH)
    x_train, x_test = (_vectors(part, places, table, config.length) for part in (train, test))
    return replace(data, x_train=x_train, x_test=x_test)


def words(text: str, most: int) -> list[str]:
    """The first words and marks of a text, in lower case."""
    return list(itertools.islice((m.group() for m in _WORD.finditer(text.lower())), most))


def _vectors(
    texts: list[list[str]], places: dict[str, int], table: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    index = np.zeros((len(texts), length), np.int64)
    for row, text in zip(index, texts, strict=True):
        row[: len(text)] = [places.get(word, 0) for word in text]
    return table[index]


def _texts(samples: list[Any]) -> NDArray[Any]:
    texts = [sample[_TEXT] for sample in samples if len(sample) > _TEXT]
    if len(texts) < len(samples) or not all(isinstance(text, str) for text in texts):
        raise ValueError("its 'x' are not tweets, each a list of id, date, query, user and text")
    return _column(texts)


def _authors(path: Path, config: Sent140Config, generator: np.random.Generator) -> list[leaf.User]:
    """Users in alphabetical order, as LEAF makes them; the authors' few test tweets, which have
    users of their own, are left out."""
    tweets: dict[str, list[tuple[str, int]]] = defaultdict(list)
    try:
        with path.open(encoding="latin-1", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if len(row) != len(_COLUMNS) or row[0] not in _POLARITY:
                    raise UserError(
                        f"{path}: tweet {number} is not {', '.join(_COLUMNS)} with a polarity of 0 "
                        "or 4"
                    )
                tweets[row[4]].append((row[5], _POLARITY[row[0]]))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except csv.Error as error:
        raise UserError(f"{path}: not a CSV file: {error}") from error
    names = sorted(tweets)
    sizes = [len(tweets[name]) for name in names]
    fraction = config.fraction or _FRACTION
    chosen = leaf.sample(sizes, fraction, config.min_samples, generator)
    return [_user(tweets[names[i]], generator) for i in chosen]


def _user(tweets: list[tuple[str, int]], generator: np.random.Generator) -> leaf.User:
    texts, labels = zip(*tweets, strict=True)
    return leaf.split(_column(texts), np.array(labels, np.int64), generator)


def _column(texts: Sequence[str]) -> NDArray[Any]:
    column = np.empty(len(texts), object)
    column[:] = texts
    return column
