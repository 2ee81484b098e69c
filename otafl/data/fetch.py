"""Download of data sets, and the list of those on this machine.

The commands are `otafl data get` and `otafl data list`.
"""

from __future__ import annotations

import contextlib
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
    *(OSError, EOFError, KeyError, zlib.error),
    *(tarfile.TarError, zipfile.BadZipFile),
)
"""Errors that unpacking an incomplete archive raises."""


class Available(NamedTuple):
    """Line of `otafl data list`.

    Parameters
    ----------
    name : str
        Name of the data set.
    location : str
        Its folder, or the package that contains it.
    is_present : bool
        Whether it is on this machine.
    description : str
        Summary of the data set, with the size of the download.
    """

    name: str
    location: str
    is_present: bool
    description: str


def fetch(name: str, root: str | None = None) -> Path:
    """Download the files of a data set, and unpack its archives.

    Files that are there already are kept if their checksum, where one is known, is right. Archives
    are removed afterwards.

    Parameters
    ----------
    name : str
        Name of the data set.
    root : str, optional
        Folder for the data set's folder; $OTAFL_DATA_DIR if not given, or else the user's cache
        folder.

    Returns
    -------
    Path
        Folder of the data set.

    Raises
    ------
    UserError
        If the name is unknown, the download fails or a checksum is wrong.
    """
    every = {one: registry.load_component("data", one).files for one in registry.list_names("data")}
    sets: dict[str, Files] = {one: files for one, files in every.items() if files is not None}
    if name not in sets:
        raise UserError(
            f"otafl data get: there is nothing to download for {name!r}; data sets to download: "
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
    """Describe one data set for the list."""
    source, description = (
        registry.load_component("data", name),
        registry.read_info("data", name).summary,
    )
    files: Files | None = source.files
    if files is None:
        where = (
            f"ships with {source.ships_with}" if source.ships_with else "given in the section data"
        )
        return Available(name, where, bool(source.ships_with), description)
    found = files.find(root)
    where = str(found or files.get_home(root))
    return Available(name, where, found is not None, f"{description}; {files.size}")


def _download(name: str, download: Download, folder: Path) -> None:
    """Download one file, and take out what is needed if it is an archive."""
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
                f"otafl data get {name}: {folder / file} from {path} must have the MD5 sum {md5}"
            )
    path.unlink()


def _is_unpacked(download: Download, folder: Path) -> bool:
    """Return whether all files of the archive are in the folder already."""
    files = download.unpacked.values()
    return bool(files) and all(
        (folder / file).is_file()
        and download.md5.get(file) in (None, pooch.file_hash(folder / file, "md5"))
        for file in files
    )


def _take_out(archive: Path, inside: str, path: Path) -> None:
    """Extract one file of an archive, which gets its name only once it is complete."""
    part = create_beside(path)
    try:
        with _open_member(archive, inside) as source, part.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_member(archive: Path, inside: str) -> Iterator[IO[bytes]]:
    """Open a file inside an archive, by the archive's suffix."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped, zipped.open(inside) as file:
            yield file
    else:
        with tarfile.open(archive) as tarred:
            member = tarred.extractfile(inside)
            if member is None:
                raise KeyError(f"{inside!r} is not a file")
            with member:
                yield member
