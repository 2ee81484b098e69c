"""Sent140 from small files in the format of the authors' own, GloVe's vectors, LEAF's users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.small_sets import VOCABULARY, make_vector, write_tweets, write_vectors

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.leaf import Sent140, draw_users, read_vectors

pytestmark = pytest.mark.exact

TWEETS = [
    ("4", "zoe", "Good day!"),
    ("0", "adam", "The BAD bad day."),
    ("4", "zoe", "the day the good"),
    ("0", "zoe", "don't"),
    ("0", "adam", "xyz bad"),
    ("4", "adam", "good"),
    ("4", "once", "good good"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "sent140"
    write_vectors(folder)
    write_tweets(folder / "training.1600000.processed.noemoticon.csv", TWEETS)
    return tmp_path


def sample(text: list[str], length: int) -> np.ndarray:
    rows = [make_vector(word) if word in VOCABULARY else np.zeros(50) for word in text]
    return np.array(rows + [np.zeros(50)] * (length - len(text)), np.float32)


def test_the_authors_file(root: Path) -> None:
    """Two users of three tweets each, by name; 'once' has too few."""
    config = Sent140(root=str(root), fraction=1.0)
    data = load(config)
    assert data.input_shape == config.input_shape == (25, 50)
    assert (data.classes, data.x_train.dtype) == (2, np.float32)
    assert_array_equal(data.owner, [0, 0, 1, 1])
    assert_array_equal(data.owner_test, [0, 1])
    texts = {
        "adam": [(["the", "bad", "bad", "day", "."], 0), (["xyz", "bad"], 0), (["good"], 1)],
        "zoe": [(["good", "day", "!"], 1), (["the", "day", "the", "good"], 1), (["don't"], 0)],
    }
    assert data.owner is not None
    assert data.owner_test is not None
    for user, own in enumerate(texts.values()):
        x = [*data.x_train[data.owner == user], *data.x_test[data.owner_test == user]]
        y = [*data.y_train[data.owner == user], *data.y_test[data.owner_test == user]]
        found = sorted((one.tobytes(), int(label)) for one, label in zip(x, y, strict=True))
        assert found == sorted((sample(text, 25).tobytes(), label) for text, label in own)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"4","1","d","q","u"\n', "not a CSV file: .* expected 6 and found 5"),
        ('"4","1","d","q","u","t"\n"4","1","d","q","u"\n', "tweet 2 must be polarity, id"),
        ('"4","1","d","q","u","t"\n"2","1","d","q","u","t"\n', "tweet 2 must be .* 0 or 4"),
        ("a" * 200_000, "not a CSV file"),
    ],
)
def test_what_is_no_file_of_tweets(root: Path, text: str, message: str) -> None:
    (root / "sent140" / "training.1600000.processed.noemoticon.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load(Sent140(root=str(root)))


def test_missing_files(root: Path) -> None:
    folder = root / "sent140"
    (folder / "glove.6B.50d.txt").unlink()
    with pytest.raises(UserError, match=r"glove.6B.50d.txt of sent140 .*otafl data get sent140"):
        load(Sent140(root=str(root)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2\nb 3\n", "line 2 has 1 numbers; must be 2"),
        (b"a 1 x\n", "not a file of GloVe vectors: could not convert"),
    ],
)
def test_what_is_no_file_of_vectors(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(path, {"a"}, 2)


def test_users_are_drawn_until_they_have_enough() -> None:
    sizes = np.random.default_rng(3).integers(1, 60, 500)
    for fraction in (0.05, 0.4, 1.0):
        drawn = draw_users(sizes, fraction, 1, np.random.default_rng(1))
        held = sizes[drawn].sum()
        assert fraction * sizes.sum() - 0.5 <= held < fraction * sizes.sum() + 60
        assert (np.diff(drawn) > 0).all()
    assert_array_equal(draw_users([5, 1, 9], 1.0, 2, np.random.default_rng(0)), [0, 2])
    with pytest.raises(UserError, match="none of the 3 drawn users has 10 samples"):
        draw_users([5, 1, 9], 1.0, 10, np.random.default_rng(0))
