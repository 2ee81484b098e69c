"""Where data sets come from and where they lie. Loading never downloads; `otafl.data.fetch`
does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pooch

from otafl.core.errors import UserError

DATA_DIR = "OTAFL_DATA_DIR"
"""The environment variable that names the folder of the data sets' folders."""
SYSTEM_ROOT = Path("/usr/share/datasets")
"""Where Debian's package dataset-fashion-mnist puts it."""


@dataclass(frozen=True)
class Download:
    """A file to download. checksum: of the file, "md5:..." or "sha256:...". unpacked: what is taken
    out of an archive, name inside -> name in the set's folder; nothing if it is kept as it is.
    md5: of files taken out, by their name in the folder, where known."""

    url: str
    checksum: str
    unpacked: Mapping[str, str] = field(default_factory=dict)
    md5: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


class Source(Protocol):
    """A data set's name, its own folder inside the root, a line about it, and what is downloaded.
    missing: what a folder lacks, or None if the set is there."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def downloads(self) -> tuple[Download, ...]: ...
    def missing(self, folder: Path) -> str | None: ...


@dataclass(frozen=True)
class Archives:
    """A set that is taken out of archives; see `Source`. lacks: `missing`."""

    name: str
    folder: str
    description: str
    downloads: tuple[Download, ...]
    lacks: Callable[[Path], str | None]

    def missing(self, folder: Path) -> str | None:
        return self.lacks(folder)


def home(source: Source, root: str | None) -> Path:
    """The set's folder in root, else in $OTAFL_DATA_DIR, else in the user's cache folder."""
    chosen = root or os.environ.get(DATA_DIR) or pooch.os_cache("otafl")
    return Path(chosen).expanduser() / source.folder


def find(source: Source, root: str | None) -> Path | None:
    """The first folder that has the set, or None."""
    return next((f for f in _folders(source, root) if source.missing(f) is None), None)


def locate(source: Source, root: str | None) -> Path:
    """The folder that has the set. UserError if a file is missing."""
    found = find(source, root)
    if found is not None:
        return found
    first, *others = _folders(source, root)
    also = "".join(f" (nor is the set in {folder})" for folder in others)
    raise UserError(
        f"data: {source.missing(first)} of {source.name} is not in {first}{also}: "
        f"`otafl data get {source.name}` downloads it, or point data.root or ${DATA_DIR} to the "
        f"folder that holds a folder {source.folder!r} with the files"
    )


def first_missing(folder: Path, files: Mapping[str, str] | tuple[str, ...]) -> str | None:
    """The first of the files that the folder does not have, or None."""
    return next((name for name in files if not (folder / name).is_file()), None)


def _folders(source: Source, root: str | None) -> list[Path]:
    system = [] if root else [SYSTEM_ROOT / source.folder]
    return [home(source, root), *system]
