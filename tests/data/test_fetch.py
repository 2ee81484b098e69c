"""What is downloaded, how it is unpacked, and what is left behind where that fails."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.small_sets import (
    EACH,
    TRAIN,
    write_cifar10,
    write_images,
    write_tweets,
    write_vectors,
)

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.cifar10 import Cifar10
from otafl.data.fetch import fetch, list_available
from otafl.data.files import Download
from otafl.data.idx import make_image_files
from otafl.data.mnist import Mnist
from otafl.data.sent140 import Sent140

pytestmark = pytest.mark.exact

NAMES = tuple(download.file for download in Mnist.files.downloads)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A web server on this machine that stands in for the official one of MNIST."""
    folder = tmp_path / "served"
    write_images(folder)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
    md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in NAMES}
    url = f"http://127.0.0.1:{web.server_address[1]}/"
    monkeypatch.setattr(Mnist, "files", make_image_files("mnist", "", url, md5))
    monkeypatch.setenv("NO_PROXY", "*")
    yield folder
    web.shutdown()
    web.server_close()


@pytest.mark.usefixtures("server")
def test_fetch(tmp_path: Path) -> None:
    root = tmp_path / "downloads"
    assert [a.name for a in list_available(str(root)) if a.is_present] == ["digits", "ridge"]
    assert fetch("mnist", str(root)) == root / "mnist"
    assert {a.name: a.is_present for a in list_available(str(root))}["mnist"]
    assert len(load(Mnist(root=str(root))).y_train) == TRAIN


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
    with pytest.raises(UserError, match=r"'digits'.*mnist, fashion_mnist"):
        fetch("digits")


def archive(folder: Path, files: dict[str, bytes]) -> Path:
    """A gzipped tar file, as the official ones."""
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


DOWNLOAD: Download = Cifar10.files.downloads[0]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small official archive with its checksums; downloads copy it. Returns the archive."""
    small = write_cifar10(tmp_path / "small")
    files = {path.name: path.read_bytes() for path in small.iterdir()}
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    changed = replace(Cifar10.files, downloads=(replace(DOWNLOAD, md5=md5),))
    monkeypatch.setattr(Cifar10, "files", changed)
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
    folder = fetch("cifar10", str(root))
    names = {path.name for path in folder.iterdir()}
    assert names == {"test_batch", *(f"data_batch_{i}" for i in range(1, 6))}
    assert len(load(Cifar10(root=str(root))).y_train) == 5 * EACH
    assert {one.name: one.is_present for one in list_available(str(root))}["cifar10"]
    served.write_bytes(b"gone")  # what is there is not downloaded again
    fetch("cifar10", str(root))
    (folder / "test_batch").write_bytes(b"broken")
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch("cifar10", str(root))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-60]), "cannot be unpacked"),
        (lambda path: archive(path.parent, {"data_batch_1": b"x"}), "cannot be unpacked.*data_bat"),
        (
            lambda path: archive(path.parent, dict.fromkeys(DOWNLOAD.md5, b"x")),
            r"batch\w* from .*tar.gz must have the MD5 sum",
        ),
    ],
)
def test_fetch_refuses_what_is_broken(
    served: Path, tmp_path: Path, change: Any, message: str
) -> None:
    change(served)
    with pytest.raises(UserError, match=f"otafl data get cifar10: .*{message}"):
        fetch("cifar10", str(tmp_path / "data"))
    assert not list((tmp_path / "data").rglob("*.part"))
    assert not {one.name: one.is_present for one in list_available(str(tmp_path))}["cifar10"]


def test_fetch_unpacks_both_archives_of_sent140(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    write_vectors(small)
    rows = [(polarity, user, "good day") for user in ("adam", "zoe") for polarity in "040"]
    write_tweets(small / "training.1600000.processed.noemoticon.csv", rows)

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        digest = {"trainingandtestdata.zip": "004a3772", "glove.6B.zip": "617afb2f"}[fname]
        assert known_hash.startswith(f"sha256:{digest}")
        path.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path / fname, "w") as archive:
            for file in small.iterdir():
                archive.write(file, file.name)
            archive.writestr("glove.6B.300d.txt", "more")
        return str(path / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    folder = fetch("sent140", str(tmp_path / "data"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "glove.6B.50d.txt",
        "training.1600000.processed.noemoticon.csv",
    ]
    keys: dict[str, Any] = {"root": str(tmp_path / "data"), "fraction": 1.0}
    assert len(load(Sent140(**keys)).y_train) == 4
