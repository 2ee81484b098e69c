"""Downloads data sets and says which are there: `otafl data get` and `otafl data list`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pooch

from otafl.data import fashion_mnist, mnist
from otafl.data.mnist import ImageFiles, find, home
from otafl.errors import UserError

SOURCES: dict[str, ImageFiles] = {files.name: files for files in (fashion_mnist.FILES, mnist.FILES)}


class Available(NamedTuple):
    """One line of `otafl data list`. where: the folder, or what the set ships with."""

    name: str
    where: str
    present: bool
    description: str


def fetch(name: str, root: str | None = None) -> Path:
    """Downloads a data set's files and returns their folder: in root, else in $OTAFL_DATA_DIR, else
    in the user's cache folder. Files that are there with the right checksum are kept. UserError if
    the name is unknown, the download fails or a checksum is wrong."""
    files = SOURCES.get(name)
    if files is None:
        raise UserError(
            f"otafl data get: there is nothing to download for {name!r}; what can be downloaded: "
            f"{', '.join(SOURCES)}"
        )
    folder = home(files, root)
    for file, md5 in files.md5.items():
        url = files.url + file
        try:
            pooch.retrieve(url, known_hash=f"md5:{md5}", fname=file, path=folder)
        except (OSError, ValueError) as error:  # the network, the disk; a wrong checksum
            raise UserError(f"otafl data get {name}: {url} to {folder}: {error}") from error
    return folder


def available(root: str | None = None) -> list[Available]:
    """The built-in data sets, and whether each is on this machine."""
    digits = Available(
        "digits", "ships with scikit-learn", True, "1,797 digits of 8x8 pixels, for quick trials"
    )
    return [digits, *(_available(files, root) for files in SOURCES.values())]


def _available(files: ImageFiles, root: str | None) -> Available:
    found = find(files, root)
    folder = home(files, root) if found is None else found[0].parent
    return Available(files.name, str(folder), found is not None, files.description)
