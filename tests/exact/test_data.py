"""Data sets: the IDX format, where files are looked for, how a set is split, and its errors."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from pydantic import TypeAdapter
from sklearn.datasets import load_digits

from otafl.core.errors import UserError
from otafl.data import DataSet, load
from otafl.data.config import (
    CustomDataConfig,
    DigitsConfig,
    FashionMnistConfig,
    MnistConfig,
)
from otafl.data.fetch import SOURCES, available, fetch
from otafl.data.idx import read_images, read_labels

TRAIN, TEST = 12, 4
NAMES = tuple(SOURCES["mnist"].md5)


def idx(values: np.ndarray) -> bytes:
    header = struct.pack(f">I{values.ndim}I", 0x0800 + values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_set(folder: Path, zipped: bool = True) -> dict[str, np.ndarray]:
    """Four small files; pixel p of image i is (7 i + p) mod 256, its label i mod 10."""
    folder.mkdir(parents=True)
    arrays = {}
    for part, n in (("train", TRAIN), ("t10k", TEST)):
        images = (7 * np.arange(n)[:, None] + np.arange(784)) % 256
        arrays[f"{part}-images-idx3-ubyte"] = images.reshape(n, 28, 28)
        arrays[f"{part}-labels-idx1-ubyte"] = np.arange(n) % 10
    for name, values in arrays.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(idx(values), mtime=0) if zipped else idx(values))
    return arrays


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_set(tmp_path / "fashion-mnist")
    return tmp_path


def test_idx_by_hand(tmp_path: Path) -> None:
    """The format's bytes, written out: two images of 1 x 3 pixels and two labels."""
    images = b"\0\0\x08\x03" + b"\0\0\0\x02" + b"\0\0\0\x01" + b"\0\0\0\x03" + bytes(range(6))
    labels = b"\0\0\x08\x01" + b"\0\0\0\x02" + b"\x07\xff"
    (tmp_path / "i").write_bytes(images)
    (tmp_path / "l.gz").write_bytes(gzip.compress(labels))
    assert_array_equal(read_images(tmp_path / "i"), [[0, 1, 2], [3, 4, 5]])
    assert_array_equal(read_labels(tmp_path / "l.gz"), [7, 255])


GOOD = idx(np.zeros((2, 3, 3)))
ZIPPED = gzip.compress(GOOD, mtime=0)  # the same bytes at all times: they name tests


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", GOOD[:-1], "truncated.*2 x 3 x 3 = 18 bytes.*17 follow"),
        ("a", GOOD + b"\0", "too long.*19 follow"),
        ("a", GOOD[:9], "truncated, 9 bytes"),
        ("a", b"", "truncated, 0 bytes"),
        ("a", b"\0\0\x09\x03" + GOOD[4:], "magic number is 0x00000903, not 0x00000803"),
        ("a", idx(np.zeros(30)), "magic number is 0x00000801, not 0x00000803"),
        ("a", b"\0\0\x08\x03" + b"\xff\xff\xff\xff" + GOOD[8:], "truncated"),
        ("a.gz", GOOD, "not a gzip file"),
        ("a.gz", ZIPPED[:-9], "corrupt gzip"),
        ("a.gz", ZIPPED[:12] + b"\xff\xff" + ZIPPED[14:], "corrupt gzip"),
    ],
)
def test_idx_refuses(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_images(path)
    assert str(path) in str(error.value)


def test_idx_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_labels(tmp_path / "nothing")


@pytest.mark.parametrize("zipped", [True, False])
def test_image_files(tmp_path: Path, zipped: bool) -> None:
    arrays = write_set(tmp_path / "mnist", zipped)
    raw = load(MnistConfig(root=str(tmp_path), pixel_scale="raw"))
    unit = load(MnistConfig(root=str(tmp_path)))
    images = arrays["train-images-idx3-ubyte"].reshape(TRAIN, 784)
    assert_array_equal(raw.x_train, images)
    assert_array_equal(unit.x_train, images.astype(np.float32) / np.float32(255))
    assert_array_equal(unit.y_test, arrays["t10k-labels-idx1-ubyte"])
    assert (unit.x_train.dtype, unit.y_train.dtype) == (np.float32, np.int64)
    assert unit.classes == 10
    assert unit.x_train.max() == 1.0
    assert unit.x_validation.shape == (0, 784)
    assert unit.y_validation.shape == (0,)


def test_root_comes_before_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTAFL_DATA_DIR", str(root))
    assert len(load(FashionMnistConfig()).y_train) == TRAIN
    with pytest.raises(UserError, match="elsewhere"):
        load(FashionMnistConfig(root=str(tmp_path / "elsewhere")))


def test_a_missing_file_says_what_to_do(root: Path) -> None:
    folder = root / "fashion-mnist"
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError) as error:
        load(FashionMnistConfig(root=str(root)))
    for part in (
        "t10k-labels-idx1-ubyte.gz",
        str(folder),
        "otafl data get fashion_mnist",
        "data.root",
        "OTAFL_DATA_DIR",
    ):
        assert part in str(error.value)


def test_counts_of_images_and_labels_must_agree(root: Path) -> None:
    path = root / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx(np.zeros(TRAIN - 1))))
    with pytest.raises(UserError, match=r"12 images but .*train-labels.* 11 labels"):
        load(FashionMnistConfig(root=str(root)))


def test_digits() -> None:
    pixels, labels = load_digits(return_X_y=True)
    data = load(DigitsConfig())
    assert_array_equal(np.concatenate([data.x_train, data.x_test]) * 16, pixels)
    assert_array_equal(np.concatenate([data.y_train, data.y_test]), labels)
    assert len(data.y_test) == 360
    assert data.x_train.shape == (1437, *DigitsConfig.input_shape)
    assert load(DigitsConfig(pixel_scale="raw")).x_test.max() == 16


def test_split_by_hand(root: Path) -> None:
    """12 training samples: the tail of 4 becomes the test set, the first 6 of the other 8 are
    kept, and the last third of those validates."""
    config = FashionMnistConfig(
        root=str(root), test="train_tail", train_samples=6, validation=1 / 3, pixel_scale="raw"
    )
    data = load(config)
    assert_array_equal(data.y_train, [0, 1, 2, 3])
    assert_array_equal(data.y_validation, [4, 5])
    assert_array_equal(data.y_test, [8, 9, 0, 1])
    first_pixels = [x[:, 0].tolist() for x in (data.x_train, data.x_validation, data.x_test)]
    assert first_pixels == [[0, 7, 14, 21], [28, 35], [56, 63, 70, 77]]


def test_parts_share_no_sample() -> None:
    official, data = load(DigitsConfig()), load(DigitsConfig(test="train_tail", validation=0.1))
    parts = [data.x_train, data.x_validation, data.x_test]
    assert_array_equal(np.concatenate(parts), official.x_train)
    assert [len(part) for part in parts] == [969, 108, 360]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"train_samples": 13}, "data.train_samples: 13 is more than the 12"),
        ({"train_samples": 9, "test": "train_tail"}, "data.train_samples: 9 is more than the 8"),
        ({"validation": 0.01}, "data.validation: 0.01 of 12"),
        ({"validation": 0.99}, "data.validation: 0.99 of 12"),
    ],
)
def test_split_refuses(root: Path, keys: dict[str, object], message: str) -> None:
    config = TypeAdapter(FashionMnistConfig).validate_python({"root": str(root), **keys})
    with pytest.raises(UserError, match=message):
        load(config)


CUSTOM = """
import numpy as np
from otafl.data import DataSet

def squares(size=3, offset=0.0):
    x = np.arange(8 * size * size, dtype=np.float64).reshape(8, size, size) + offset
    y = np.arange(8, dtype=np.int32) % 2
    return DataSet(x, y, x[:5], y[:5], classes=2)

def nothing(): return {}
def shapes(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 3)), np.zeros(4), 2)
def lengths(): return DataSet(np.zeros((4, 2)), np.zeros(3), np.zeros((4, 2)), np.zeros(4), 2)
def labels(): return DataSet(np.zeros((4, 2)), np.full(4, 2), np.zeros((4, 2)), np.zeros(4), 2)
def halves(): return DataSet(np.zeros((4, 2)), np.full(4, 0.5), np.zeros((4, 2)), np.zeros(4), 2)
def empty(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((0, 2)), np.zeros(0), 2)
def large_test(): return DataSet(np.zeros((4, 2)), np.zeros(4), np.zeros((4, 2)), np.zeros(4), 2)
def own():
    x, y = np.zeros((4, 2)), np.zeros(4)
    return DataSet(x, y, x, y, 2, x[:1], y[:1])
number = 3
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_otafl_data.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_otafl_data", raising=False)


@pytest.mark.usefixtures("custom")
def test_a_data_set_of_the_users_own() -> None:
    config = CustomDataConfig.model_validate(
        {"name": "my_otafl_data:squares", "size": 2, "offset": 1.0, "validation": 0.25}
    )
    data = load(config)
    assert isinstance(data, DataSet)
    assert data.input_shape == (2, 2)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.float32, np.int64)
    assert_array_equal(data.x_validation[0], [[25, 26], [27, 28]])
    assert_array_equal(data.y_validation, [0, 1])


@pytest.mark.usefixtures("custom")
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "my_otafl_missing:f"}, "No module named 'my_otafl_missing'"),
        ({"name": "my_otafl_data:circles"}, "'circles' does not exist in module"),
        ({"name": "my_otafl_data:number"}, "'number' is not callable"),
        ({"name": "my_otafl_data:squares", "sise": 2}, "unexpected keyword argument 'sise'"),
        ({"name": "my_otafl_data:nothing"}, "returned dict, not otafl.data.DataSet"),
        ({"name": "my_otafl_data:shapes"}, r"test shapes disagree: x is \[4, 3\].*\[n, 2\]"),
        ({"name": "my_otafl_data:lengths"}, r"train shapes disagree.*y is \[3\]"),
        ({"name": "my_otafl_data:labels"}, r"labels must be in 0..1 for 2 classes.*2..2"),
        ({"name": "my_otafl_data:halves"}, "labels must be whole numbers"),
        ({"name": "my_otafl_data:empty"}, "no test samples"),
        ({"name": "my_otafl_data:large_test", "test": "train_tail"}, "data.test: train_tail"),
        ({"name": "my_otafl_data:own", "validation": 0.5}, "1 validation samples of its own"),
    ],
)
def test_custom_refuses(keys: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(CustomDataConfig.model_validate(keys))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A web server on this machine that stands in for the official one of MNIST."""
    folder = tmp_path / "served"
    write_set(folder)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
    md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in NAMES}
    url = f"http://127.0.0.1:{web.server_address[1]}/"
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], url=url, md5=md5))
    monkeypatch.setenv("NO_PROXY", "*")
    yield folder
    web.shutdown()
    web.server_close()


@pytest.mark.usefixtures("server")
def test_fetch(tmp_path: Path) -> None:
    root = tmp_path / "downloads"
    assert [a.name for a in available(str(root)) if a.present] == ["digits"]
    assert fetch("mnist", str(root)) == root / "mnist"
    assert {a.name: a.present for a in available(str(root))}["mnist"]
    assert len(load(MnistConfig(root=str(root))).y_train) == TRAIN


def test_fetch_refuses_wrong_bytes(server: Path, tmp_path: Path) -> None:
    (server / NAMES[2]).write_bytes(b"something else")
    with pytest.raises(UserError, match=rf"otafl data get mnist: .*{NAMES[2]}.*hash"):
        fetch("mnist", str(tmp_path / "downloads"))
    assert not (tmp_path / "downloads" / "mnist" / NAMES[2]).exists()


def test_fetch_reports_a_failed_download(server: Path, tmp_path: Path) -> None:
    (server / NAMES[0]).unlink()
    with pytest.raises(UserError, match=r"otafl data get mnist: .*404"):
        fetch("mnist", str(tmp_path / "downloads"))


def test_fetch_of_what_cannot_be_downloaded() -> None:
    with pytest.raises(UserError, match=r"'digits'.*fashion_mnist, mnist"):
        fetch("digits")


@pytest.mark.parametrize("config", [FashionMnistConfig(), MnistConfig()])
def test_the_real_set(config: FashionMnistConfig | MnistConfig) -> None:
    """Published sizes, where the files are on this machine."""
    if not {a.name: a.present for a in available()}[config.name]:
        pytest.skip(f"{config.name} is not on this machine")
    data = load(config)
    assert data.x_train.shape == (60_000, 784)
    assert data.x_test.shape == (10_000, 784)
    assert data.x_train.min() == 0
    assert data.x_train.max() == 1
    means = {"fashion_mnist": 0.2860, "mnist": 0.1307}  # the ones used to normalise, 4 digits
    assert data.x_train.mean(dtype=np.float64) == pytest.approx(means[config.name], abs=5e-5)
