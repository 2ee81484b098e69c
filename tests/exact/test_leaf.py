"""FEMNIST from small files in LEAF's JSON format and in TensorFlow Federated's SQLite format, and
what the two share: users, their training and test samples, and how users are sampled.

Mutations that must fail: `split` with nothing left to train on or to test with, or out of order;
`sample` by the number of users, without the least number of samples, or one user short; samples of
other users; owners by training counts in the test set; test folder and training folder changed
about; in `federated_sqlite`, a wrong byte order, no sign in a number, a field of another message,
splits not both asked for, samples of all clients; `data.train_samples` or the pooled set without
their owners.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data import DataSet, fetch, leaf, load
from otafl.data.config import CustomDataConfig, FemnistConfig
from otafl.data.config_partition import NaturalConfig
from otafl.data.partition import partition

WRITERS = {"f0": (4, 1), "f2": (2, 2), "f1": (9, 3)}
"""Name -> training and test samples, in the order of the file."""


def image(number: int) -> list[float]:
    return [round(((number * 7 + p) % 256) / 255, 6) for p in range(784)]


def content(part: int, names: list[str]) -> dict[str, Any]:
    """LEAF's JSON: image i of writer w in a part is image(1000 part + 100 w + i), labelled 60-i."""
    data = {}
    for name in names:
        count = WRITERS[name][part]
        first = 1000 * part + 100 * int(name[1])
        data[name] = {
            "x": [image(first + i) for i in range(count)],
            "y": [60 - i for i in range(count)],
        }
    return {"users": names, "num_samples": [len(d["y"]) for d in data.values()], "user_data": data}


def write(folder: Path, name: str, value: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A split FEMNIST of three writers in two files."""
    for part, folder in enumerate(("train", "test")):
        place = tmp_path / "femnist" / folder
        write(place, "all_data_0_keep_0.json", content(part, ["f0", "f2"]))
        write(place, "all_data_1_keep_0.json", content(part, ["f1"]))
    return tmp_path


def first_pixels(x: np.ndarray) -> list[int]:
    return np.rint(x[:, 0] * 255).astype(int).tolist()


def expected(part: int, name: str) -> list[int]:
    first = 1000 * part + 100 * int(name[1])
    return [(first + i) * 7 % 256 for i in range(WRITERS[name][part])]


def test_leafs_own_split(root: Path) -> None:
    data = load(FemnistConfig(root=str(root)))
    assert (data.x_train.shape, data.x_test.shape) == ((15, 784), (6, 784))
    assert (data.classes, data.x_train.dtype, data.y_train.dtype) == (62, np.float32, np.int64)
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 9)
    assert_array_equal(data.owner_test, [0, 1, 1, 2, 2, 2])
    for part, x in enumerate((data.x_train, data.x_test)):
        assert first_pixels(x) == [one for name in WRITERS for one in expected(part, name)]
    assert_array_equal(data.y_test, [60, 60, 59, 60, 59, 58])
    assert_array_equal(data.x_train[0], np.array(image(0), np.float32))


def test_natural_partition_of_it(root: Path) -> None:
    """Pooled, a device's training samples come before its test samples."""
    data = load(FemnistConfig(root=str(root), test="per_device"))
    assert len(data.y_train) == 21
    parts = partition(NaturalConfig(), data.y_train, 3, np.random.default_rng(0), data.owner)
    assert [part.tolist() for part in parts] == [
        [0, 1, 2, 3, 15],
        [4, 5, 16, 17],
        [*range(6, 15), 18, 19, 20],
    ]


def test_owners_follow_the_samples(root: Path) -> None:
    config = {"root": str(root)}
    data = load(FemnistConfig(**config, train_samples=5))
    assert_array_equal(data.owner, [0, 0, 0, 0, 1])
    data = load(FemnistConfig(**config, test="train_tail"))
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 3)
    assert_array_equal(data.owner_test, [2] * 6)
    data = load(FemnistConfig(**config, validation=0.2))
    assert_array_equal(data.owner, [0] * 4 + [1] * 2 + [2] * 6)


@pytest.mark.parametrize("folder", ["all_data", "sampled_data", "rem_user_data", "data/all_data"])
def test_unsplit_files(tmp_path: Path, folder: str) -> None:
    """A test sample of each writer, at least; the same whenever it is loaded."""
    write(tmp_path / "femnist" / folder, "all_data.json", content(0, list(WRITERS)))
    data = load(FemnistConfig(root=str(tmp_path)))
    assert data.owner is not None
    assert data.owner_test is not None
    assert_array_equal(np.bincount(data.owner), [3, 1, 8])
    assert_array_equal(np.bincount(data.owner_test), [1, 1, 1])
    for writer, name in enumerate(WRITERS):
        train = first_pixels(data.x_train[data.owner == writer])
        test = first_pixels(data.x_test[data.owner_test == writer])
        assert sorted(train + test) == sorted(expected(0, name))
        assert train == [pixel for pixel in expected(0, name) if pixel in train]
    again = load(FemnistConfig(root=str(tmp_path)))
    assert_array_equal(again.x_test, data.x_test)


@pytest.mark.parametrize(("count", "kept"), [(2, 1), (3, 2), (5, 4), (10, 9), (11, 9), (40, 36)])
def test_split_is_leafs(count: int, kept: int) -> None:
    x = np.arange(count)
    user = leaf.split(x, x + 100, np.random.default_rng(count))
    assert len(user.x_train) == kept
    assert user.size == count
    assert_array_equal(np.sort(np.concatenate([user.x_train, user.x_test])), x)
    assert_array_equal(user.y_train, user.x_train + 100)
    assert (np.diff(user.x_train) > 0).all()


def test_users_are_drawn_until_they_have_enough() -> None:
    sizes = np.random.default_rng(3).integers(1, 60, 500)
    for fraction in (0.05, 0.4, 1.0):
        for seed in range(5):
            drawn = leaf.sample(sizes.tolist(), fraction, 1, np.random.default_rng(seed))
            held = sizes[drawn].sum()
            assert held >= fraction * sizes.sum() - 0.5
            assert held < fraction * sizes.sum() + 60
            assert (np.diff(drawn) > 0).all()
    assert_array_equal(leaf.sample([5, 1, 9], 1.0, 2, np.random.default_rng(0)), [0, 2])
    with pytest.raises(UserError, match="none of the 3 users drawn has 10 samples"):
        leaf.sample([5, 1, 9], 1.0, 10, np.random.default_rng(0))


def test_a_fraction_of_the_files(root: Path) -> None:
    names = set()
    for seed in range(12):
        data = load(FemnistConfig(root=str(root), fraction=0.1, sample_seed=seed))
        assert data.owner is not None
        assert set(data.owner) == {0}
        names.add(len(data.y_train))
    assert names == {4, 2, 9}
    few = load(FemnistConfig(root=str(root), min_samples=5))
    assert_array_equal(few.owner, [0] * 4 + [1] * 9)


def spoilt(**change: Any) -> dict[str, Any]:
    one = content(0, ["f0"])
    one["user_data"]["f0"].update(change)
    return one


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not a JSON file"),
        ("[]", "not a file of LEAF"),
        ({"users": ["f0"]}, "'user_data' is missing"),
        ({"users": ["f0"], "user_data": {}}, "'f0' is missing"),
        ({"users": 3, "user_data": {}}, "not a file of LEAF"),
        (spoilt(x=[[0.5] * 783] * 4), r"user 'f0': its 'x' have shape \[4, 783\]"),
        (spoilt(x=[[0.5] * 784, [0.5]] * 2), "user 'f0': setting an array"),
        (spoilt(x=[["a"] * 784] * 4), "user 'f0': could not convert"),
        (spoilt(y=[1, 2, 3]), "user 'f0' has 4 samples but 3 labels"),
        (spoilt(y=[1, 2, 3, 0.5]), "user 'f0': its 'y' are not a list of whole numbers"),
        (spoilt(y=[1, 2, 3, 62]), "labels must be in 0..61"),
        ({"users": ["f0"], "user_data": {"f0": {"x": []}}}, "user 'f0': 'y' is missing"),
    ],
)
def test_what_is_no_file_of_leaf(tmp_path: Path, value: Any, message: str) -> None:
    write(tmp_path / "femnist" / "all_data", "all_data.json", value)
    with pytest.raises(UserError, match=message):
        load(FemnistConfig(root=str(tmp_path)))


def test_users_of_one_folder_alone(root: Path) -> None:
    write(root / "femnist" / "test", "all_data_1_keep_0.json", content(1, []))
    with pytest.raises(UserError, match=r"user 'f1' is in one of .*preprocess.sh -t sample"):
        load(FemnistConfig(root=str(root)))
    write(root / "femnist" / "train", "more.json", content(0, ["f0"]))
    with pytest.raises(UserError, match="user 'f0' is in another file"):
        load(FemnistConfig(root=str(root)))


def test_owners_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.zeros((4, 2)), np.zeros(4)

    def make() -> DataSet:
        return DataSet(x, y, x, y, 2, owner=np.arange(3))

    monkeypatch.setattr("otafl.core.custom.call", lambda *_: make())
    with pytest.raises(UserError, match=r"owner is \[3\]; wanted one user for each of the 4"):
        load(CustomDataConfig(name="a:b"))


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def example(pixels: list[float], label: int, packed: bool = True) -> bytes:
    """A `tf.train.Example` by protocol buffers' encoding; a list is packed or number by number."""
    if packed:
        floats = field(1, struct.pack(f"<{len(pixels)}f", *pixels))
        integers = field(1, varint(label))
    else:
        floats = b"".join(varint(1 << 3 | 5) + struct.pack("<f", one) for one in pixels)
        integers = varint(1 << 3) + varint(label)
    entries = (
        field(1, b"label") + field(2, field(3, integers)),
        field(1, b"pixels") + field(2, field(2, floats)),
    )
    name = field(1, b"id") + field(2, field(1, field(1, b"some bytes")))
    return field(1, field(1, name) + b"".join(field(1, entry) for entry in entries))


def hosted(path: Path, samples: dict[tuple[str, str], list[bytes]]) -> None:
    """A file of TensorFlow Federated with the samples of (split, client)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path)
    file.execute(
        "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, "
        "serialized_example_proto BLOB NOT NULL)"
    )
    file.execute(
        "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, "
        "num_examples INTEGER NOT NULL)"
    )
    for (split, client), messages in samples.items():
        for message in messages:
            file.execute("INSERT INTO examples VALUES (?, ?, ?)", (split, client, message))
        file.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (client, split, len(messages)))
    file.commit()
    file.close()


def all_writers() -> dict[tuple[str, str], list[bytes]]:
    samples = {}
    for part, split in enumerate(("all_train", "all_test")):
        for name, counts in WRITERS.items():
            first = 1000 * part + 100 * int(name[1])
            samples[split, name] = [
                example(image(first + i), 60 - i, packed=i % 2 == 0) for i in range(counts[part])
            ]
        samples["digits_only" + split[3:], "f0"] = [example(image(5), 3)]
    return samples


def test_the_hosted_file(tmp_path: Path) -> None:
    hosted(tmp_path / "femnist" / "emnist_all.sqlite", all_writers())
    data = load(FemnistConfig(root=str(tmp_path), fraction=1.0))
    assert_array_equal(data.owner, [0] * 4 + [1] * 9 + [2] * 2)
    names = sorted(WRITERS)
    for part, x in enumerate((data.x_train, data.x_test)):
        assert first_pixels(x) == [one for name in names for one in expected(part, name)]
    assert_array_equal(data.y_test, [60, 60, 59, 58, 60, 59])
    assert_array_equal(data.x_train[0], np.array(image(0), np.float32))
    few = load(FemnistConfig(root=str(tmp_path)))
    assert few.owner is not None
    assert set(few.owner) == {0}  # a twentieth: one writer


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\x0a", "is not a tf.train.Example"),
        (example(image(0), 1)[:-1], "is not a tf.train.Example"),
        (field(1, field(1, field(1, b"pixels") + field(2, b""))), "is not a tf.train.Example"),
        (b"\x0b\x01", "is not a tf.train.Example"),
        (example(image(0), 1) + b"\x12\x40cut off", "is not a tf.train.Example"),
        (b"\xff" * 12, "is not a tf.train.Example"),
        (example(image(0)[:9], 1), "has 9 pixels and 1 labels; wanted 784 and 1"),
        (example(image(0), -1), "labels must be in 0..61 .*-1..-1"),
        ("text", "is not a tf.train.Example"),
    ],
)
def test_spoilt_samples(tmp_path: Path, message: Any, error: str) -> None:
    good = [example(image(0), 1)]
    samples = {("all_train", "a"): [message], ("all_test", "a"): good}
    hosted(tmp_path / "femnist" / "emnist_all.sqlite", samples)
    with pytest.raises(UserError, match=error):
        load(FemnistConfig(root=str(tmp_path)))


def test_what_is_no_hosted_file(tmp_path: Path) -> None:
    path = tmp_path / "femnist" / "emnist_all.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(UserError, match="not a data set of TensorFlow Federated"):
        load(FemnistConfig(root=str(tmp_path)))
    path.unlink()
    hosted(path, {("all_train", "a"): [example(image(0), 1)]})
    with pytest.raises(UserError, match="has no clients with samples in all_train and all_test"):
        load(FemnistConfig(root=str(tmp_path)))
    with pytest.raises(UserError, match=r"emnist_all.sqlite of femnist .*otafl data get femnist"):
        load(FemnistConfig(root=str(tmp_path / "elsewhere")))


def test_fetch_unpacks_the_hosted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted(tmp_path / "small.sqlite", all_writers())
    packed = lzma.compress((tmp_path / "small.sqlite").read_bytes(), lzma.FORMAT_ALONE)

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        assert url.startswith("https://storage.googleapis.com/tff-datasets-public/")
        assert known_hash.startswith("sha256:c3aaf91b")
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(packed)
        return str(path / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    folder = fetch.fetch("femnist", str(tmp_path / "data"))
    assert [path.name for path in folder.iterdir()] == ["emnist_all.sqlite"]
    data = load(FemnistConfig(root=str(tmp_path / "data"), fraction=1.0))
    assert len(data.y_train) == 15
    packed = packed[:-100]
    with pytest.raises(UserError, match=r"femnist: .*sqlite.lzma cannot be unpacked"):
        fetch.fetch("femnist", str(tmp_path / "more"))
