"""Sent140 from small files in LEAF's format and in the authors' own, and GloVe's vectors.

Mutations that must fail: words in upper case, without apostrophes or marks, beyond the length; a
word that is not known as another's vector, padding in front; the vector of the second of two equal
words; polarity 4 as 0; users in the order of the file; the text of another column; owners of other
tweets.
"""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data import fetch, load
from otafl.data.config import Sent140Config
from otafl.data.glove import read_vectors
from otafl.data.sent140 import words

VOCABULARY = ["the", "good", "bad", "day", "!", ".", "don't", "not", "good"]
TWEETS = [
    ("4", "zoe", "Good day!"),
    ("0", "adam", "The BAD bad day."),
    ("4", "zoe", "the day the good"),
    ("0", "zoe", "don't"),
    ("0", "adam", "xyz bad"),
    ("4", "adam", "good"),
    ("4", "once", "good good"),
]


def vector(word: str) -> np.ndarray:
    """The word's 50 numbers: its first place in the vocabulary, and a half for each place."""
    return VOCABULARY.index(word) + np.arange(50, dtype=np.float32) / 2


def write_vectors(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for place, word in enumerate(VOCABULARY):
        lines.append(" ".join([word, *(f"{place + i / 2:.1f}" for i in range(50))]))
    (folder / "glove.6B.50d.txt").write_text("\n".join(lines) + "\n")


def write_tweets(path: Path, rows: list[tuple[str, str, str]]) -> None:
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        for number, (polarity, user, text) in enumerate(rows):
            writer.writerow([polarity, number, "Mon Apr 06", "NO_QUERY", user, text])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "sent140"
    write_vectors(folder)
    write_tweets(folder / "training.1600000.processed.noemoticon.csv", TWEETS)
    return tmp_path


def sample(text: list[str], length: int) -> np.ndarray:
    rows = [vector(word) if word in VOCABULARY else np.zeros(50) for word in text]
    return np.array(rows + [np.zeros(50)] * (length - len(text)), np.float32)


def test_words() -> None:
    assert words("I DON'T know... really?!", 25) == [
        *("i", "don't", "know", ".", ".", "."),
        *("really", "?", "!"),
    ]
    assert words("a b c d", 2) == ["a", "b"]
    assert words(" ()-- ", 5) == []


def test_the_authors_file(root: Path) -> None:
    """Two users of three tweets each, by name; 'once' has too few."""
    config = Sent140Config(root=str(root), fraction=1.0, length=4)
    data = load(config)
    assert data.input_shape == config.input_shape == (4, 50)
    assert (data.classes, data.x_train.dtype) == (2, np.float32)
    assert_array_equal(data.owner, [0, 0, 1, 1])
    assert_array_equal(data.owner_test, [0, 1])
    texts = {
        "adam": [(["the", "bad", "bad", "day"], 0), (["xyz", "bad"], 0), (["good"], 1)],
        "zoe": [(["good", "day", "!"], 1), (["the", "day", "the", "good"], 1), (["don't"], 0)],
    }
    assert data.owner is not None
    assert data.owner_test is not None
    for user, own in enumerate(texts.values()):
        x = [*data.x_train[data.owner == user], *data.x_test[data.owner_test == user]]
        y = [*data.y_train[data.owner == user], *data.y_test[data.owner_test == user]]
        found = sorted((one.tobytes(), int(label)) for one, label in zip(x, y, strict=True))
        assert found == sorted((sample(text, 4).tobytes(), label) for text, label in own)


def test_length_and_seed(root: Path) -> None:
    short = load(Sent140Config(root=str(root), fraction=1.0, length=2))
    assert short.input_shape == (2, 50)
    splits = {
        load(Sent140Config(root=str(root), fraction=1.0, sample_seed=seed)).x_test.tobytes()
        for seed in range(8)
    }
    assert len(splits) > 2
    twice = [load(Sent140Config(root=str(root), fraction=1.0)).x_test for _ in range(2)]
    assert_array_equal(*twice)


def leafs(folder: Path, part: str, users: dict[str, list[tuple[str, int]]]) -> None:
    data = {
        name: {
            "x": [["17", "Mon", "NO_QUERY", name, text, "training"] for text, _ in own],
            "y": [label for _, label in own],
        }
        for name, own in users.items()
    }
    (folder / part).mkdir(parents=True, exist_ok=True)
    content = {"users": list(users), "num_samples": [], "user_data": data}
    (folder / part / "all_data_niid_05_keep_3.json").write_text(json.dumps(content))


def test_leafs_files(root: Path) -> None:
    """They come before the authors' file, and all of them are taken."""
    folder = root / "sent140"
    leafs(
        folder, "train", {"b": [("Good day!", 1), ("bad", 0)], "a": [("not good", 0), ("the", 1)]}
    )
    leafs(folder, "test", {"b": [("don't.", 0)], "a": [("day day", 1)]})
    data = load(Sent140Config(root=str(root), length=3))
    assert_array_equal(data.owner, [0, 0, 1, 1])
    assert_array_equal(data.y_train, [1, 0, 0, 1])
    expected = [["good", "day", "!"], ["bad"], ["not", "good"], ["the"]]
    assert_array_equal(data.x_train, [sample(text, 3) for text in expected])
    assert_array_equal(data.x_test, [sample(text, 3) for text in (["don't", "."], ["day"] * 2)])
    leafs(folder, "test", {"b": [("x", 0)], "a": []})
    path = next((folder / "test").iterdir())
    path.write_text(path.read_text().replace('"training"', "3").replace('"x"]', "3]"))
    content = json.loads(path.read_text())
    content["user_data"]["b"]["x"] = [["17", "Mon"]]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="user 'b': its 'x' are not tweets"):
        load(Sent140Config(root=str(root)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"4","1","d","q","u"\n', "tweet 1 is not polarity, id"),
        ('"4","1","d","q","u","t"\n"2","1","d","q","u","t"\n', "tweet 2 is not .* 0 or 4"),
        ("a" * 200_000, "not a CSV file"),
        ("", "none of the 0 users drawn has 3 samples"),
    ],
)
def test_what_is_no_file_of_tweets(root: Path, text: str, message: str) -> None:
    (root / "sent140" / "training.1600000.processed.noemoticon.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load(Sent140Config(root=str(root)))


def test_vectors_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\nb 3 4\nä 5 6\na 7 8\n", encoding="utf-8")
    places, table = read_vectors(path, {"a", "ä", "c"}, 2)
    assert places == {"a": 1, "ä": 2}
    assert_array_equal(table, [[0, 0], [1, 2], [5, 6]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\nb 3\n", "line 2 has 1 numbers, not 2"),
        (b"a 1 2 3\n", "line 1 has 3 numbers, not 2"),
        (b"a 1 x\n", "not a file of GloVe vectors: could not convert"),
        (b"\xff\xfe 1 2\n", "not a file of GloVe vectors"),
    ],
)
def test_what_is_no_file_of_vectors(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(path, {"a"}, 2)


def test_missing_files(root: Path) -> None:
    folder = root / "sent140"
    (folder / "training.1600000.processed.noemoticon.csv").unlink()
    with pytest.raises(UserError, match=r"training.*csv of sent140 .*otafl data get sent140"):
        load(Sent140Config(root=str(root)))
    (folder / "glove.6B.50d.txt").unlink()
    with pytest.raises(UserError, match=r"glove.6B.50d.txt of sent140"):
        load(Sent140Config(root=str(root)))


def test_fetch_unpacks_both_archives(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        digest = {"trainingandtestdata.zip": "004a3772", "glove.6B.zip": "617afb2f"}[fname]
        assert known_hash.startswith(f"sha256:{digest}")
        path.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path / fname, "w") as archive:
            for file in (root / "sent140").iterdir():
                archive.write(file, file.name)
            archive.writestr("glove.6B.300d.txt", "more")
        return str(path / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    folder = fetch.fetch("sent140", str(tmp_path / "data"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "glove.6B.50d.txt",
        "training.1600000.processed.noemoticon.csv",
    ]
    keys: dict[str, Any] = {"root": str(tmp_path / "data"), "fraction": 1.0}
    assert len(load(Sent140Config(**keys)).y_train) == 4
