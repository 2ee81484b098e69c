"""CIFAR-10 and CIFAR-100 from small files in the format of the official ones, how they are
unpacked, and the scales of pixels.

Mutations that must fail: channels last, the batches in another order, the test batch among them;
labels by the coarse key; an unpickler without its list of what may be made; shapes, dtypes or
labels not checked; a standardised set with the other set's means, by deviation times, or with
black left at 0; a file that is unpacked not checked, taken from another place of the archive, or
the archive kept.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otafl.core.errors import UserError
from otafl.data import DataSet, cifar10, cifar100, fetch, load
from otafl.data.config import Cifar10Config, Cifar100Config
from otafl.data.pickles import read_batch
from otafl.data.pixels import scaled

EACH = 3


def legacy(pixels: np.ndarray, **labels: list[int]) -> bytes:
    """A pickle as Python 2 wrote it: protocol 2, its strings plain bytes, an array by its
    constructor and its state."""

    def text(word: str) -> bytes:
        return b"U" + bytes([len(word)]) + word.encode()

    shape = b"".join(b"J" + struct.pack("<i", side) for side in pixels.shape)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
        b"(K\x01" + shape + b"\x86cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )
    items = text("data") + array
    for key, values in labels.items():
        items += text(key) + b"](" + b"".join(bytes([75, one]) for one in values) + b"e"
    return b"\x80\x02}(" + text("batch_label") + text("x") + items + b"u."


def batch(number: int) -> tuple[np.ndarray, list[int]]:
    """Pixels and labels of a batch, all different."""
    pixels = np.random.default_rng(number).integers(0, 256, (EACH, 3072), np.uint8)
    return pixels, [(number + i) % 10 for i in range(EACH)]


def ten(folder: Path) -> Path:
    """A small CIFAR-10; batch 0 is the test batch."""
    folder.mkdir(parents=True)
    for number in range(6):
        name = f"data_batch_{number}" if number else "test_batch"
        pixels, labels = batch(number)
        (folder / name).write_bytes(legacy(pixels, labels=labels))
    return folder


def test_cifar10(tmp_path: Path) -> None:
    ten(tmp_path / "cifar-10-batches-py")
    data = load(Cifar10Config(root=str(tmp_path), pixel_scale="raw"))
    train = np.concatenate([batch(i)[0] for i in range(1, 6)])
    assert_array_equal(data.x_train, train.reshape(-1, 3, 32, 32))
    assert_array_equal(data.y_train, [label for i in range(1, 6) for label in batch(i)[1]])
    assert_array_equal(data.x_test.reshape(EACH, -1), batch(0)[0])
    assert_array_equal(data.y_test, [0, 1, 2])
    # Red comes first, row by row.
    assert data.x_train[0, 1, 0, 5] == train[0, 1024 + 5]
    assert data.x_train[0, 0, 2, 0] == train[0, 64]
    assert (data.classes, data.x_train.dtype) == (10, np.float32)
    assert data.input_shape == Cifar10Config.input_shape


def test_cifar100(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, number in (("train", 1), ("test", 2)):
        pixels, labels = batch(number)
        fine = [90 + one for one in labels]
        content = legacy(pixels, coarse_labels=labels, fine_labels=fine)
        (folder / name).write_bytes(content)
    data = load(Cifar100Config(root=str(tmp_path)))
    assert_array_equal(data.y_train, [91, 92, 93])
    assert_array_equal(data.y_test, [92, 93, 94])
    assert_allclose(data.x_test.reshape(EACH, -1), batch(2)[0] / 255, rtol=1e-6)
    assert data.classes == 100


@pytest.mark.parametrize(
    ("scale", "shift", "factor"),
    [
        ("unit", 0, 1),
        ("raw", 0, 255),
        ("signed", 0.5, 2),
        (
            "standardised",
            np.array([0.4914, 0.4822, 0.4465]),
            1 / np.array([0.2023, 0.1994, 0.2010]),
        ),
    ],
)
def test_scales(tmp_path: Path, scale: Any, shift: Any, factor: Any) -> None:
    ten(tmp_path / "cifar-10-batches-py")
    data = load(Cifar10Config(root=str(tmp_path), pixel_scale=scale))
    unit = batch(1)[0].reshape(EACH, 3, 32, 32) / 255
    expected = (unit.transpose(0, 2, 3, 1) - shift) * factor
    assert_allclose(data.x_train[:EACH].transpose(0, 2, 3, 1), expected, rtol=1e-5, atol=1e-5)
    assert data.black is not None
    black = np.broadcast_to(data.black, (3, 32, 32))[:, 0, 0]
    assert_allclose(black, np.broadcast_to((0 - shift) * factor, 3), rtol=1e-5)


def test_scales_of_grey_images() -> None:
    """By hand: pixels 0, 2, 4, 6 of three images, and one pixel that never changes."""
    train, test = np.array([[0, 9], [2, 9]], np.uint8), np.array([[4, 9]], np.uint8)
    by_pixel = scaled(train, test, "standardised_per_pixel")
    deviation = (8 / 3) ** 0.5 + 0.001
    assert_allclose(by_pixel[0], [[-2 / deviation, 0], [0, 0]], rtol=1e-6)
    assert_allclose(by_pixel[1], [[2 / deviation, 0]], rtol=1e-6)
    assert_allclose(by_pixel[2], [-2 / deviation, -9 / 0.001], rtol=1e-6)
    values = np.array([0, 9, 2, 9, 4, 9])
    one = scaled(train, test, "standardised")
    expected = (values - values.mean()) / (values.std() + 0.001)
    assert_allclose(np.concatenate([one[0], one[1]]).ravel(), expected, rtol=1e-5)
    assert_allclose(one[2], expected[0], rtol=1e-5)
    signed = scaled(train, test, "signed")
    assert_allclose(signed[0], train / 127.5 - 1, atol=1e-6)
    assert signed[2] == -1


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harmed",)


GOOD = legacy(*batch(0)[:1], labels=batch(0)[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:-40], "not a CIFAR batch"),
        (b"", "not a CIFAR batch"),
        (b"\x1f\x8b nonsense", "not a CIFAR batch"),
        (pickle.dumps(Harmful()), "it asks for .*mkdir, which no batch needs"),
        (pickle.dumps({b"data": Harmful()}, 2), "it asks for .*mkdir, which no batch needs"),
        (pickle.dumps([1, 2]), "has no 'data' and 'labels'"),
        (legacy(batch(0)[0], fine_labels=[1, 2, 3]), "has no 'data' and 'labels'"),
        (legacy(batch(0)[0], labels=[1, 2]), "3 images but 2 labels"),
        (legacy(batch(0)[0], labels=[1, 2, 10]), "'labels' are not a list of numbers from 0 to 9"),
        (legacy(batch(0)[0][:, :3000], labels=[1, 2, 3]), r"shape \[3, 3000\]; wanted \[n, 3072\]"),
        (pickle.dumps({b"data": [1], b"labels": [1]}, 2), "'data' are not an array of bytes"),
        (pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [1]}, 2), "not an array of bytes"),
    ],
)
def test_what_is_no_batch(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_batch(path, "labels", 10)
    assert str(path) in str(error.value)
    assert not Path("harmed").exists()


def test_batches_as_python_3_writes_them(tmp_path: Path) -> None:
    pixels, labels = batch(4)
    for protocol in (2, 4):
        content = {b"data": pixels, b"labels": labels}
        (tmp_path / "batch").write_bytes(pickle.dumps(content, protocol))
        found = read_batch(tmp_path / "batch", "labels", 10)
        assert_array_equal(found[0], pixels)
        assert_array_equal(found[1], labels)


def test_a_missing_batch_says_what_to_do(tmp_path: Path) -> None:
    folder = ten(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_3").unlink()
    with pytest.raises(UserError, match=r"data_batch_3 of cifar10 .*otafl data get cifar10"):
        load(Cifar10Config(root=str(tmp_path)))
    with pytest.raises(UserError, match="train of cifar100"):
        load(Cifar100Config(root=str(tmp_path)))


def archive(folder: Path, files: dict[str, bytes]) -> Path:
    """A gzipped tar file, as the official ones."""
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small official archive with its checksums; downloads copy it. Returns the archive."""
    small = ten(tmp_path / "small")
    files = {path.name: path.read_bytes() for path in small.iterdir()}
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    (download,) = cifar10.FILES.downloads
    source = replace(cifar10.FILES, downloads=(replace(download, md5=md5),))
    monkeypatch.setitem(fetch.SOURCES, "cifar10", source)
    path = archive(tmp_path, files | {"readme.html": b"hello"})

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        assert url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
        assert known_hash == "md5:c58f30108f718f92721af3b95e74349a"
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(archive_of[0].read_bytes())
        return str(path / fname)

    archive_of = [path]
    monkeypatch.setattr("pooch.retrieve", retrieve)
    return path


def test_fetch_unpacks(served: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    folder = fetch.fetch("cifar10", str(root))
    names = {path.name for path in folder.iterdir()}
    assert names == {"test_batch", *(f"data_batch_{i}" for i in range(1, 6))}
    assert len(load(Cifar10Config(root=str(root))).y_train) == 5 * EACH
    assert {one.name: one.present for one in fetch.available(str(root))}["cifar10"]
    served.write_bytes(b"gone")  # what is there is not downloaded again
    fetch.fetch("cifar10", str(root))
    (folder / "test_batch").write_bytes(b"broken")
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch.fetch("cifar10", str(root))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-60]), "cannot be unpacked"),
        (lambda path: archive(path.parent, {"data_batch_1": b"x"}), "cannot be unpacked.*data_bat"),
        (
            lambda path: archive(path.parent, dict.fromkeys(cifar10.FILES.downloads[0].md5, b"x")),
            r"batch\w*, out of .*tar.gz, has not the MD5 sum",
        ),
    ],
)
def test_fetch_refuses_what_is_broken(
    served: Path, tmp_path: Path, change: Any, message: str
) -> None:
    change(served)
    with pytest.raises(UserError, match=f"otafl data get cifar10: .*{message}"):
        fetch.fetch("cifar10", str(tmp_path / "data"))
    assert not list((tmp_path / "data").rglob("*.part"))
    assert not {one.name: one.present for one in fetch.available(str(tmp_path))}["cifar10"]


@pytest.mark.parametrize("config", [Cifar10Config(), Cifar100Config()])
def test_the_real_set(config: Cifar10Config | Cifar100Config) -> None:
    """Published sizes and channel means, where the files are on this machine."""
    if not {a.name: a.present for a in fetch.available()}[config.name]:
        pytest.skip(f"{config.name} is not on this machine")
    data: DataSet = load(config)
    assert data.x_train.shape == (50_000, 3, 32, 32)
    assert data.x_test.shape == (10_000, 3, 32, 32)
    assert_array_equal(np.bincount(data.y_train), [50_000 // data.classes] * data.classes)
    means = {"cifar10": cifar10._MEAN, "cifar100": cifar100._MEAN}[config.name]
    assert_allclose(data.x_train.mean((0, 2, 3), dtype=np.float64), means, atol=1e-4)
