"""Files of data sets: their origin, their place on this machine, and their download.

Loading never downloads; the commands `otafl data get` and `otafl data list` use `fetch` and
`list_available`.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pooch
from pydantic import Field

from otafl.core import checksums, registry
from otafl.core.errors import AbsentDataError, UserError
from otafl.core.files import MIB, open_regular

DATA_DIR = "OTAFL_DATA_DIR"
"""Environment variable with the folder that contains the folders of data sets."""

Root = Annotated[
    str | None,
    Field(
        description="folder that contains the data set's own folder; $OTAFL_DATA_DIR if not given, "
        "or else the user's cache folder"
    ),
]
"""Type of the field `root` of a data set with files."""


@dataclass(frozen=True)
class Download:
    """File to download.

    Parameters
    ----------
    url : str
        Address.
    checksum : str
        Checksum of the downloaded file, "md5:..." or "sha256:..."; empty if none is published.
    members : tuple of str
        Files to take out of an archive; empty if the file is no archive.
    extract_dir : str
        Folder that they are unpacked to, seen from the data set's folder, in which they then are.
    """

    url: str
    checksum: str
    members: tuple[str, ...] = ()
    extract_dir: str = "."

    @property
    def file(self) -> str:
        """Last part of the address."""
        return self.url.rpartition("/")[2]

    def list_paths(self, folder: Path) -> list[Path]:
        """Return where the files to read are in the data set's folder."""
        return [folder / self.extract_dir / member for member in self.members or (self.file,)]

    def is_whole(self, path: Path) -> bool | None:
        """Return whether a file to read has its published checksum, or the one beside it.

        `fetch` writes checksums beside unpacked files. None if the file has neither. Packers write
        different gzip files for the same content, so their own CRC-32 counts.
        """
        own = checksums.find_digest(path)
        known = [f"sha256:{own}"] * bool(own) + [self.checksum] * bool(
            self.checksum and not self.members
        )
        with wrap_read_errors(path):
            about = path.stat()
            changed = about.st_mtime_ns, about.st_size
            if path.suffix == ".gz":
                return _unpacks(path, *changed)
            found = (_hash_file(path, one.partition(":")[0], *changed) == one for one in known)
            return any(found) if known else None


@functools.lru_cache(maxsize=256)
def _hash_file(path: Path, kind: str, changed_ns: int, size: int) -> str:
    """Return the checksum of a file of this size, last changed at this time."""
    with open_regular(path) as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


@functools.lru_cache(maxsize=256)
def _unpacks(path: Path, changed_ns: int, size: int) -> bool:
    """Return whether a gzip file of this size, last changed at this time, has its checksum."""
    with open_regular(path) as packed, contextlib.suppress(OSError, EOFError, zlib.error):
        with gzip.open(packed) as file:
            while file.read(MIB):
                pass
        return True
    return False


@dataclass(frozen=True)
class Files:
    """Files of a data set.

    Parameters
    ----------
    folder : str
        Folder of the data set, inside the root.
    size : str
        Size of the downloads, as a text.
    downloads : tuple of Download
        Files to download.
    """

    folder: str
    size: str
    downloads: tuple[Download, ...]

    def get_home(self, root: str | None) -> Path:
        """Return the data set's folder in `root`, $OTAFL_DATA_DIR or the user's cache folder."""
        chosen = root or os.environ.get(DATA_DIR) or pooch.os_cache("otafl")
        return Path(chosen).expanduser() / self.folder

    def find_missing(self, root: str | None) -> Path | None:
        """Return the first file that the data set's folder lacks, None if it is complete."""
        home = self.get_home(root)
        paths = (path for one in self.downloads for path in one.list_paths(home))
        return next((path for path in paths if not path.is_file()), None)

    def locate(self, name: str, root: str | None) -> Path:
        """Return the folder that contains the data set.

        Parameters
        ----------
        name : str
            Name of the data set, for the message.
        root : str, optional
            Folder that contains the data set's folder.

        Returns
        -------
        Path
            Folder with all files.

        Raises
        ------
        AbsentDataError
            If a file is missing.
        UserError
            If a file has another checksum than the published one.
        """
        home, missing = self.get_home(root), self.find_missing(root)
        if missing is None:
            unpacked = (
                path
                for one in self.downloads
                for path in one.list_paths(home)
                if path.suffix != ".gz" and one.is_whole(path) is False  # unpacking checks others
            )
            if (changed := next(unpacked, None)) is None:
                return home
            raise UserError(
                f"data: {changed} is not the published file of {name}: its checksum differs; "
                f"`otafl data get {name}` downloads it again, and a file of your own needs the "
                f"line of `sha256sum` for it in {changed.name}{checksums.SUFFIX} beside it"
            )
        raise AbsentDataError(
            f"data: {missing.name} of {name} is not in {home}; run `otafl data get {name}`, or set "
            f"data.root or ${DATA_DIR} to the folder that contains a folder {self.folder!r} with "
            "the files"
        )


MAX_BYTES = 4096 * MIB
"""Largest size of a file that is read into memory as a whole."""


@contextlib.contextmanager
def wrap_read_errors(path: Path, fault: str = "", *errors: type[Exception]) -> Iterator[None]:
    """Raise a UserError for errors while a file is read; for one of `errors` it names the fault."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except errors as error:
        raise UserError(f"{path}: {fault}: {error}") from error


def fetch(name: str, root: str | None = None) -> Path:
    """Download the files of a data set, and unpack its archives.

    Files that are there already are kept. Archives are removed once they are unpacked.

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
        _download(name, download, folder)
    return folder


def list_available(root: str | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each built-in data set, its state on this machine, where it is, and what.

    The state is "no", "yes", "damaged" if a checksum differs, or "unchecked" if none is known.
    """
    for name in registry.list_names("data"):
        source, what = registry.load_component("data", name), registry.read_info("data", name)
        files: Files | None = source.files
        if files is not None:
            home, state = files.get_home(root), "no"
            if files.find_missing(root) is None:
                good = {one.is_whole(p) for one in files.downloads for p in one.list_paths(home)}
                state = "damaged" if False in good else "unchecked" if None in good else "yes"
            yield name, state, str(home), f"{what.summary}; {files.size}"
        elif source.ships_with:
            yield name, "yes", f"ships with {source.ships_with}", what.summary
        else:
            yield name, "no", "given in the section data", what.summary


def _download(name: str, download: Download, folder: Path) -> None:
    """Download one file; of an archive, take out the files that are needed.

    An archive that is still there shows that its files are incomplete.
    """
    url, archive = download.url, folder / download.file
    taken, processor = download.list_paths(folder), None
    whole = all(path.is_file() and download.is_whole(path) is not False for path in taken)
    if whole and not (download.members and archive.exists()):
        return
    if download.members:
        for path in taken:
            path.unlink(missing_ok=True)
        kind = pooch.Unzip if archive.suffix == ".zip" else pooch.Untar
        processor = kind(members=list(download.members), extract_dir=download.extract_dir)
    try:
        pooch.retrieve(
            url,
            known_hash=download.checksum or None,
            fname=download.file,
            path=folder,
            processor=processor,
        )
    except (tarfile.TarError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise UserError(f"otafl data get {name}: {archive} cannot be unpacked: {error}") from error
    except (OSError, ValueError) as error:  # the network, the disk; a wrong checksum
        raise UserError(f"otafl data get {name}: {url} to {folder}: {error}") from error
    if download.members:
        missing = [path.name for path in taken if not path.is_file()]
        if missing:
            raise UserError(f"otafl data get {name}: {archive} has no {', '.join(missing)}")
        for path in taken:
            checksums.write(path)
        archive.unlink()
