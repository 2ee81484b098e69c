"""Say where the files of data sets come from, and find them.

Loading never downloads; `otafl.data.fetch` does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pooch
from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.inputs import MIB

DATA_DIR = "OTAFL_DATA_DIR"
"""The environment variable that names the folder of the data sets' folders."""
SYSTEM_ROOT = Path("/usr/share/datasets")
"""Where Debian's package dataset-fashion-mnist puts it."""

Root = Annotated[
    str | None,
    Field(
        description="folder that holds the data set's own folder; by default $OTAFL_DATA_DIR, else "
        "the user's cache folder"
    ),
]
"""The field `root` of a data set that is files."""


@dataclass(frozen=True)
class Download:
    """Say what is downloaded. checksum: of the file, "md5:..." or "sha256:...". unpacked: what is
    taken out of an archive, name inside -> name in the set's folder; nothing if it is kept as it
    is. md5: of files taken out, by their name in the folder, where known."""

    url: str
    checksum: str
    unpacked: Mapping[str, str] = field(default_factory=dict)
    md5: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Return the last part of the address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Files:
    """Say what a data set's files are. folder: the set's own, inside the root. size: of what is
    downloaded, for people. find_missing_fn: what a folder does not have, or None if the set is
    there."""

    folder: str
    size: str
    downloads: tuple[Download, ...]
    find_missing_fn: Callable[[Path], str | None]

    def get_home(self, root: str | None) -> Path:
        """Return the set's folder in root, else in $OTAFL_DATA_DIR, else in the user's cache
        folder."""
        chosen = root or os.environ.get(DATA_DIR) or pooch.os_cache("otafl")
        return Path(chosen).expanduser() / self.folder

    def find(self, root: str | None) -> Path | None:
        """Return the first folder that has the set, or None."""
        return next((f for f in self._list_folders(root) if self.find_missing_fn(f) is None), None)

    def locate(self, name: str, root: str | None) -> Path:
        """Return the folder that has the set of this name. Raises UserError if a file is
        missing."""
        found = self.find(root)
        if found is not None:
            return found
        first, *others = self._list_folders(root)
        also = "".join(f" (nor is the set in {folder})" for folder in others)
        raise UserError(
            f"data: {self.find_missing_fn(first)} of {name} is not in {first}{also}: "
            f"`otafl data get {name}` downloads it, or point data.root or ${DATA_DIR} to the "
            f"folder that holds a folder {self.folder!r} with the files"
        )

    def _list_folders(self, root: str | None) -> list[Path]:
        system = [] if root else [SYSTEM_ROOT / self.folder]
        return [self.get_home(root), *system]


MAX_BYTES = 4096 * MIB
"""Of a file that is read into memory whole."""


@contextlib.contextmanager
def wrap_read_errors(path: Path, fault: str = "", *errors: type[Exception]) -> Iterator[None]:
    """Make a UserError of what goes wrong while a file is read; one of `errors` means the fault."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except errors as error:
        raise UserError(f"{path}: {fault}: {error}") from error
