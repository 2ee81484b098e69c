"""Data sets of people: FEMNIST and Sent140 with LEAF's draw of users, and Shakespeare's plays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.files import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet, Floats, Indices, Labelled
from otafl.data.files import Download, Files, Root, wrap_read_errors
from otafl.data.hugging_face import check_column, open_splits, read_pixels
from otafl.data.partitions.base import SampleAssignment
from otafl.losses.base import Labels

_TRAIN_SHARE = 0.9
_SEED = 0
"""Seed of the draws of users and of their test samples, the same in all trials."""


User = tuple[NDArray[Any], Labelled, NDArray[Any], Labelled]
"""Training samples and labels, and test samples and labels, of one user."""


def split_user(x: NDArray[Any], y: Indices, generator: np.random.Generator) -> User:
    """Split the samples of a user, as in LEAF's `split_data.py`.

    Parameters
    ----------
    x : ndarray, [n, ...]
        Two samples or more.
    y : ndarray, int64 [n]
        Their labels.
    generator : numpy.random.Generator
        Random generator of the split.

    Returns
    -------
    tuple of ndarray
        Nine tenths of the samples and labels for training and the others for testing, at least one
        each. Both parts keep the order.
    """
    kept = min(max(1, int(_TRAIN_SHARE * len(y))), len(y) - 1)
    train = np.zeros(len(y), bool)
    train[generator.permutation(len(y))[:kept]] = True
    return x[train], y[train], x[~train], y[~train]


def draw_users(
    sample_counts: Sequence[int] | Indices,
    fraction: float,
    min_samples: int,
    generator: np.random.Generator,
) -> Indices:
    """Draw users at random until they have a fraction of all samples, as in LEAF's non-IID draw.

    Parameters
    ----------
    sample_counts : Sequence of int
        Number of samples of each user.
    fraction : float
        Fraction of all samples.
    min_samples : int
        Smallest number of samples of a user.
    generator : numpy.random.Generator
        Random generator of the draw.

    Returns
    -------
    ndarray, int64 [n]
        Drawn users with at least `min_samples` samples, in ascending order.

    Raises
    ------
    UserError
        If no drawn user has so many samples.
    """
    counts = np.asarray(sample_counts, np.int64)
    order = generator.permutation(len(counts))
    needed = fraction * counts.sum()
    drawn = order[: np.searchsorted(np.cumsum(counts[order]), needed - 0.5) + 1]
    chosen = np.sort(drawn[counts[drawn] >= min_samples])
    if not len(chosen):
        raise UserError(
            f"data.min_samples: none of the {len(drawn)} drawn users has {min_samples} samples; "
            "use a smaller number or a larger data.fraction"
        )
    return chosen


def draw_groups(
    users: NDArray[Any], fraction: float, min_samples: int, generator: np.random.Generator
) -> list[Indices]:
    """Draw users with `draw_users`, and return the samples of each by the users [n] of all."""
    names, user = np.unique(users, return_inverse=True)
    own = SampleAssignment.group_by_device(np.arange(len(user)), user, len(names))
    return [own[index] for index in draw_users(own.counts, fraction, min_samples, generator)]


def join_users(users: Sequence[User], classes: int) -> DataSet:
    """Join the samples of all users, user by user, with their owners."""
    x_train, y_train, x_test, y_test = (np.concatenate(parts) for parts in zip(*users, strict=True))
    owner, owner_test = (
        np.repeat(np.arange(len(users)), [len(user[part]) for user in users]) for part in (1, 3)
    )
    return DataSet(
        x_train, y_train, x_test, y_test, classes=classes, owner=owner, owner_test=owner_test
    )


_SIDE = 28


class Femnist(DataSource):
    """FEMNIST: handwritten digits and letters of 28x28 pixels by about 3,600 writers.

    They are characters of NIST Special Database 19, with pixels in [0, 1] and a background of 1, as
    LEAF made them. The library `datasets` reads them by path or name: a folder that `save_to_disk`
    wrote or one of Parquet files, or a data set of the Hugging Face hub, which the library
    downloads to its own cache when it is first read. The package datasets is needed: `pip install
    'otafl[hf]'`. A random tenth of each writer's samples tests, as in LEAF's `split_data.py`.

    References
    ----------
    Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
    """

    has_users: ClassVar[bool] = True
    input_shape: ClassVar[tuple[int, ...]] = (_SIDE * _SIDE,)
    classes: ClassVar[int] = 62

    name: Literal["femnist"] = "femnist"
    dataset: str = Field("flwrlabs/femnist", min_length=1)
    """path of a folder, or name on the Hugging Face hub, with the columns image, writer_id and
    character"""
    fraction: float = Field(0.05, gt=0, le=1)
    """share of all samples, for which users are drawn at random"""
    min_samples: int = Field(2, ge=2)
    """smallest number of samples of a user"""

    def read(self) -> DataSet:
        splits = open_splits(self.name, self.dataset)
        if "train" not in splits:
            raise UserError(
                f"data.dataset: {self.dataset!r} has the splits {', '.join(splits)}; expected "
                "'train' with all samples, as flwrlabs/femnist has it"
            )
        table = splits["train"]
        for column in ("image", "writer_id", "character"):
            check_column(table, column, "dataset")
        writers, generator = np.asarray(table["writer_id"][:]), np.random.default_rng(_SEED)
        chosen = []
        for own in draw_groups(writers, self.fraction, self.min_samples, generator):
            samples = table.select(own)
            pixels = read_pixels(samples["image"], "image")
            if pixels.shape[1:] != (_SIDE, _SIDE):
                raise UserError(
                    f"data.dataset: the images of writer {str(writers[own[0]])!r} are "
                    f"{list(pixels.shape[1:])}; expected grey ones of [{_SIDE}, {_SIDE}] pixels"
                )
            x = pixels.reshape(len(pixels), -1) / np.float32(255)
            y = np.array(samples["character"][:], np.int64)
            chosen.append(split_user(x, y, generator))
        return join_users(chosen, self.classes)


_TWEETS = "training.1600000.processed.noemoticon.csv"
_VECTORS = "glove.6B.50d.txt"
_WIDTH = 50
_LENGTH = 25
"""Words of a tweet; the words after them are cut off."""
_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
_POLARITIES = ("0", "4")
"""Negative and positive."""
_WORD = re.compile(r"[\w']+|[.,!?;]")


class Sent140(DataSource):
    """Sent140: 1,600,000 positive and negative tweets of 659,775 users, as word vectors.

    A tweet is positive or negative by the emoticons that it contained. `otafl data get` downloads
    the authors' own file of training tweets, from which users and their test tweets are drawn as
    LEAF draws them. GloVe's vectors of 50 numbers, glove.6B.50d.txt, are in the same folder and are
    not trained. The file has a line for each word, with the word and its numbers. A sample is
    [length, 50], and zero after the last word or for a word without a vector. 25 words take 5 kB,
    and a twentieth of the tweets takes 400 MB.

    References
    ----------
    Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
    Pennington, Socher, Manning 2014, "GloVe: Global Vectors for Word Representation".
    Go, Bhayani, Huang 2009, "Twitter Sentiment Classification using Distant Supervision".
    """

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
    )
    has_users: ClassVar[bool] = True
    input_shape: ClassVar[tuple[int, ...]] = (_LENGTH, _WIDTH)
    classes: ClassVar[int] = 2

    name: Literal["sent140"] = "sent140"
    root: Root = None
    fraction: float = Field(0.05, gt=0, le=1)
    """share of all samples, for which users are drawn at random"""
    min_samples: int = Field(3, ge=2)
    """smallest number of samples of a user"""

    def read(self) -> DataSet:
        folder = self.files.locate(self.name, self.root)
        tweets, generator = _read_tweets(folder / _TWEETS), np.random.default_rng(_SEED)
        texts, users = (tweets[name].to_numpy(object) for name in ("text", "user"))
        y = (tweets["polarity"] == _POLARITIES[1]).to_numpy(np.int64)
        drawn = draw_groups(users, self.fraction, self.min_samples, generator)
        data = join_users([split_user(texts[own], y[own], generator) for own in drawn], 2)
        parts = [[tokenise(text) for text in part] for part in (data.x_train, data.x_test)]
        known = set(itertools.chain.from_iterable(itertools.chain(*parts)))
        vectors = read_vectors(folder / _VECTORS, known, _WIDTH)
        x_train, x_test = (np.zeros((len(part), _LENGTH, _WIDTH), np.float32) for part in parts)
        for row, text in zip((*x_train, *x_test), itertools.chain(*parts), strict=True):
            for place, word in enumerate(text):
                row[place] = vectors.get(word, 0.0)
        return replace(data, x_train=x_train, x_test=x_test)


def read_vectors(path: Path, words: Collection[str], width: int) -> dict[str, Floats]:
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
    dict of str to ndarray, float32 [width]
        Vectors of the words that the file has.

    Raises
    ------
    UserError
        If a line is not a word and so many numbers.
    """
    vectors: dict[str, Floats] = {}
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
            if word in words:
                vectors.setdefault(word, np.array(values[1:], np.float32))
    return vectors


def tokenise(text: str) -> list[str]:
    """Return the first words and punctuation marks of a text, in lower case."""
    return _WORD.findall(text.lower())[:_LENGTH]


def _read_tweets(path: Path) -> Any:
    """Read polarity, user and text of the tweets in the authors' file, as a pandas.DataFrame.

    The few test tweets of the authors are in another file, and have users of their own.
    """
    import pandas as pd  # type: ignore[import-untyped]  # a third of a second, also of --help

    with (
        wrap_read_errors(path, "not a CSV file", ValueError),
        open_regular(path) as file,
    ):
        tweets = pd.read_csv(
            file,
            names=_COLUMNS,
            usecols=["polarity", "user", "text"],
            dtype=str,
            encoding="latin-1",
            na_filter=False,
        )
    wrong = ~tweets["polarity"].isin(_POLARITIES) | tweets.eq("").any(axis=1)
    if wrong.any():
        raise UserError(
            f"{path}: tweet {int(wrong.argmax()) + 1} must be {', '.join(_COLUMNS)}, with "
            "polarity 0 or 4"
        )
    return tweets


_FILE = "input.txt"
ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of the text that is downloaded."""


class Shakespeare(DataSource):
    """Read Shakespeare's plays as sequences of characters, a user for each speaking role.

    The file has speeches as "NAME:" on a line of its own, then the text, then a blank line. A
    speaker is a user, equal names are one, and speakers of fewer than `min_characters` are left
    out: 64 of 309 have 5,000 in the text of 1.1 MB that `otafl data get` downloads. A speaker's
    speeches in their order are one text, cut into sequences of `seq_len` characters. The label of a
    sequence is the same text one character further, and the last sequences of each speaker test.
    LEAF's Shakespeare is the same task on the complete works, by single next characters; `seq_len`
    is its name too.

    References
    ----------
    Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
    McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks
        from Decentralized Data", section 3.
    """

    files: ClassVar[Files] = Files(
        "shakespeare",
        "1 MB",
        (
            Download(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
                f"{_FILE}",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
    )
    has_users: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = "tokens"
    default_loss: ClassVar[str] = "next_token"
    example: ClassVar = {"model.name": "ngram"}

    name: Literal["shakespeare"] = "shakespeare"
    root: Root = None
    partition: Any = declare_choice(
        "partition", "how samples are assigned to the devices", default="natural"
    )
    test: Literal["official", "train_tail", "per_device"] = "per_device"
    """per_device: each speaker's last sequences test, on the speaker's device; official: those of
    all speakers together"""
    test_share: float = Field(0.25, gt=0, lt=1)
    """share of a speaker's sequences, the last in the text, that test"""
    min_characters: int = Field(5000, ge=1)
    """speakers with a shorter text are left out"""
    seq_len: int = Field(80, ge=1)
    """characters of a sequence, as LEAF calls it"""
    alphabet: str = Field(ALPHABET, min_length=2)
    """characters that are told apart; any other counts as the space, which must be one of them"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.seq_len,)

    @property
    def classes(self) -> int:  # type: ignore[override]
        return len(self.alphabet)

    def find_conflicts(self) -> Iterator[str]:
        if len(set(self.alphabet)) < len(self.alphabet):
            yield f"alphabet: got {self.alphabet!r}; every character must be in it once"
        if " " not in self.alphabet:
            yield (
                f"alphabet: expected a space among the characters, got {self.alphabet!r}; any "
                "other character counts as a space, so add one"
            )

    def read(self) -> DataSet:
        path = self.files.locate(self.name, self.root) / _FILE
        every = _read_speakers(path)
        texts = {n: t for n, t in every.items() if len(t) >= self.min_characters}
        if not texts:
            longest = max(map(len, every.values()), default=0)
            raise UserError(
                f"data.min_characters: got {self.min_characters}, but none of the {len(every)} "
                f"speakers of {path} has more than {longest} characters of text; use fewer"
            )
        place = {character: at for at, character in enumerate(self.alphabet)}
        space = place[" "]
        speakers = []
        for name, text in texts.items():
            tokens = np.array([place.get(one, space) for one in text])
            number = (len(tokens) - 1) // self.seq_len
            kept = int((1.0 - self.test_share) * number)
            if not 0 < kept < number:
                raise UserError(
                    f"data.seq_len: {name}'s {len(tokens)} characters make {number} sequences of "
                    f"{self.seq_len}, too few for training and test; use shorter ones, or a larger "
                    "data.min_characters"
                )
            x, y = (tokens[s : s + number * self.seq_len].reshape(number, -1) for s in (0, 1))
            x = x.astype(np.float32)
            speakers.append((x[:kept], y[:kept], x[kept:], y[kept:]))
        return join_users(speakers, self.classes)


def _read_speakers(path: Path) -> dict[str, str]:
    """Return speaker -> text, in the order of the first speeches; empty without any text.

    Raises UserError if the file has another form.
    """
    with wrap_read_errors(path, "not UTF-8 text", UnicodeDecodeError), open_regular(path) as file:
        whole = file.read().decode().replace("\r\n", "\n")
    speeches: dict[str, list[str]] = {}
    for block in whole.split("\n\n"):
        name, _, text = block.strip("\n").partition("\n")
        if not name:
            continue
        if not name.endswith(":"):
            raise UserError(
                f"{path}: expected 'NAME:' on a line before each speech, got {name[:40]!r}; "
                "`otafl data get shakespeare` downloads such a file"
            )
        speeches.setdefault(name[:-1], []).append(text)
    return {name: "".join(f"{one}\n" for one in own if one) for name, own in speeches.items()}
