"""What is downloaded, how it is unpacked, and what is left behind where that fails."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.small_sets import (
    EACH,
    TRAIN,
    write_cifar10,
    write_images,
)

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.cifar import Cifar10
from otafl.data.files import fetch, list_available
from otafl.data.idx import Mnist

pytestmark = pytest.mark.exact


@dataclass
class Server:
    """Web server on this machine that stands in for the official ones."""

    folder: Path
    url: str
    monkeypatch: pytest.MonkeyPatch

    def offer(self, kind: Any) -> None:
        """Let a data set download its files from here, with the checksums of what is there."""
        changed = []
        for one in kind.files.downloads:
            digest = hashlib.md5((self.folder / one.file).read_bytes()).hexdigest()
            changed.append(replace(one, url=self.url + one.file, checksum=f"md5:{digest}"))
        files = replace(kind.files, downloads=tuple(changed))
        self.monkeypatch.setattr(kind, "files", files)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    folder = tmp_path / "served"
    write_images(folder)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "*")
    yield Server(folder, f"http://127.0.0.1:{web.server_address[1]}/", monkeypatch)
    web.shutdown()
    web.server_close()


def list_present(root: Path) -> list[str]:
    return [name for name, state, *_ in list_available(str(root)) if state in ("yes", "unchecked")]


def test_plain_files(server: Server, tmp_path: Path) -> None:
    server.offer(Mnist)
    root = tmp_path / "downloads"
    assert tuple(name for name, *_ in list_available(str(root))) == registry.list_names("data")
    assert list_present(root) == ["digits", "ridge"]
    assert fetch("mnist", str(root)) == root / "mnist"
    assert list_present(root) == ["digits", "mnist", "ridge"]
    assert len(load(Mnist(root=str(root))).y_train) == TRAIN
    path = root / "mnist" / Mnist.files.downloads[3].file
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=7))
    assert list_present(root) == ["digits", "mnist", "ridge"]
    path.write_bytes(path.read_bytes()[:-1])
    assert list_present(root) == ["digits", "ridge"]


def test_wrong_bytes_and_a_failed_download_are_refused(server: Server, tmp_path: Path) -> None:
    server.offer(Mnist)
    name = Mnist.files.downloads[2].file
    (server.folder / name).write_bytes(b"something else")
    with pytest.raises(UserError, match=rf"otafl data get mnist: .*{name}.*hash"):
        fetch("mnist", str(tmp_path))
    assert not (tmp_path / "mnist" / name).exists()
    (server.folder / name).unlink()
    with pytest.raises(UserError, match=r"otafl data get mnist: .*404"):
        fetch("mnist", str(tmp_path))
    with pytest.raises(UserError, match=r"'digits'.*mnist, fashion_mnist"):
        fetch("digits")


def write_archive(folder: Path, files: dict[str, bytes]) -> None:
    """Write a gzipped tar file, as the official ones of CIFAR."""
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_a_tar_file_is_unpacked(server: Server, tmp_path: Path) -> None:
    small = write_cifar10(tmp_path / "small")
    files = {path.name: path.read_bytes() for path in small.iterdir()}
    write_archive(server.folder, files | {"readme.html": b"hello"})
    server.offer(Cifar10)
    folder = fetch("cifar10", str(tmp_path))
    assert folder == tmp_path / "cifar-10-batches-py"
    assert {path.name for path in folder.iterdir()} == {*files, *(f"{one}.sha256" for one in files)}
    assert len(load(Cifar10(root=str(tmp_path))).y_train) == 5 * EACH
    # an archive that is left shows that unpacking was interrupted
    archive = server.folder / "cifar-10-python.tar.gz"
    (folder / archive.name).write_bytes(archive.read_bytes())
    (folder / "test_batch").write_bytes(b"half")
    fetch("cifar10", str(tmp_path))
    assert (folder / "test_batch").read_bytes() == files["test_batch"]
    (folder / "test_batch").write_bytes(b"damaged")
    with pytest.raises(UserError, match="test_batch is not the published file of cifar10"):
        load(Cifar10(root=str(tmp_path)))
    assert dict(row[:2] for row in list_available(str(tmp_path)))["cifar10"] == "damaged"
    fetch("cifar10", str(tmp_path))
    archive.unlink()  # what is there is not downloaded again
    fetch("cifar10", str(tmp_path))
    assert len(load(Cifar10(root=str(tmp_path))).y_train) == 5 * EACH


def test_an_archive_without_its_files_is_refused(server: Server, tmp_path: Path) -> None:
    write_archive(server.folder, {"data_batch_1": b"x"})
    server.offer(Cifar10)
    with pytest.raises(UserError, match=r"cifar10: .*tar.gz has no .*data_batch_2"):
        fetch("cifar10", str(tmp_path))
    (server.folder / "cifar-10-python.tar.gz").write_bytes(b"no archive")
    server.offer(Cifar10)
    with pytest.raises(UserError, match=r"otafl data get cifar10: .*cannot be unpacked"):
        fetch("cifar10", str(tmp_path))
    assert "cifar10" not in list_present(tmp_path)
