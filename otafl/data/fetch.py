"""Download data sets and say which are there: `otafl data get` and `otafl data list`."""

from __future__ import annotations

import contextlib
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pooch

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.files import create_beside
from otafl.data.files import Download, Files

_BROKEN = (
    *(OSError, EOFError, KeyError, zlib.error, lzma.LZMAError),
    *(tarfile.TarError, zipfile.BadZipFile),
)
"""What unpacking raises where an archive is not whole."""


class Available(NamedTuple):
    """A line of `otafl data list`. location: the folder, or the origin of an embedded set."""

    name: str
    location: str
    is_present: bool
    description: str


def fetch(name: str, root: str | None = None) -> Path:
    """Download a data set's files and return their folder: in root, else in $OTAFL_DATA_DIR, else
    in the user's cache folder.

    Archives are unpacked and removed. Files that are there already are kept, if their checksum
    (where one is known) is right. Raises UserError if the name is unknown, the download fails or a
    checksum is wrong.
    """
    every = {one: registry.load_component("data", one).files for one in registry.list_names("data")}
    sets: dict[str, Files] = {one: files for one, files in every.items() if files is not None}
    if name not in sets:
        raise UserError(
            f"otafl data get: there is nothing to download for {name!r}; what can be downloaded: "
            f"{', '.join(sets)}"
        )
    folder = sets[name].get_home(root)
    for download in sets[name].downloads:
        if not _is_unpacked(download, folder):
            _download(name, download, folder)
    return folder


def list_available(root: str | None = None) -> list[Available]:
    """List the built-in data sets, and whether each is on this machine."""
    return [_describe_source(name, root) for name in registry.list_names("data")]


def _describe_source(name: str, root: str | None) -> Available:
    source, description = (
        registry.load_component("data", name),
        registry.read_info("data", name).summary,
    )
    files: Files | None = source.files
    if files is None:
        where = f"ships with {source.ships_with}" if source.ships_with else "where data says"
        return Available(name, where, bool(source.ships_with), description)
    found = files.find(root)
    where = str(found or files.get_home(root))
    return Available(name, where, found is not None, f"{description}; {files.size}")


def _download(name: str, download: Download, folder: Path) -> None:
    url = download.url
    try:
        path = Path(
            pooch.retrieve(url, known_hash=download.checksum, fname=download.file, path=folder)
        )
    except (OSError, ValueError) as error:  # the network, the disk; a wrong checksum
        raise UserError(f"otafl data get {name}: {url} to {folder}: {error}") from error
    if not download.unpacked:
        return
    try:
        for inside, file in download.unpacked.items():
            _take_out(path, inside, folder / file)
    except _BROKEN as error:
        raise UserError(f"otafl data get {name}: {path} cannot be unpacked: {error}") from error
    for file, md5 in download.md5.items():
        if pooch.file_hash(folder / file, "md5") != md5:
            (folder / file).unlink()
            raise UserError(
                f"otafl data get {name}: {folder / file}, out of {path}, has not the MD5 sum {md5}"
            )
    path.unlink()


def _is_unpacked(download: Download, folder: Path) -> bool:
    """Say whether everything that is taken out of the archive is there already."""
    files = download.unpacked.values()
    return bool(files) and all(
        (folder / file).is_file()
        and download.md5.get(file) in (None, pooch.file_hash(folder / file, "md5"))
        for file in files
    )


def _take_out(archive: Path, inside: str, path: Path) -> None:
    """Take one file out of an archive; it has its name only once it is whole."""
    part = create_beside(path)
    try:
        with _open_member(archive, inside) as source, part.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_member(archive: Path, inside: str) -> Iterator[IO[bytes]]:
    if archive.suffix == ".lzma":
        with lzma.open(archive) as file:
            yield file
    elif archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped, zipped.open(inside) as file:
            yield file
    else:
        with tarfile.open(archive) as tarred:
            member = tarred.extractfile(inside)
            if member is None:
                raise KeyError(f"{inside!r} is not a file")
            with member:
                yield member
