"""Download of data sets, and the list of those on this machine.

The commands are `otafl data get` and `otafl data list`.
"""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pooch

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data.files import Download, Files


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
    """Download one file; of an archive, take out the files that are needed.

    An archive that is still there shows that its files are incomplete.
    """
    url, archive = download.url, folder / download.file
    taken = [folder / download.extract_dir / member for member in download.members]
    processor = None
    if taken:
        if not archive.exists() and all(path.is_file() for path in taken):
            return
        for path in taken:
            path.unlink(missing_ok=True)
        kind = pooch.Unzip if archive.suffix == ".zip" else pooch.Untar
        processor = kind(members=list(download.members), extract_dir=download.extract_dir)
    try:
        pooch.retrieve(
            url,
            known_hash=download.checksum,
            fname=download.file,
            path=folder,
            processor=processor,
        )
    except (tarfile.TarError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise UserError(f"otafl data get {name}: {archive} cannot be unpacked: {error}") from error
    except (OSError, ValueError) as error:  # the network, the disk; a wrong checksum
        raise UserError(f"otafl data get {name}: {url} to {folder}: {error}") from error
    if taken:
        missing = [path.name for path in taken if not path.is_file()]
        if missing:
            raise UserError(f"otafl data get {name}: {archive} has no {', '.join(missing)}")
        archive.unlink()
