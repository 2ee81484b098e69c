"""Reading of a scenario's file: its text, its content, and the places of its keys."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from otafl.core.files import HDF5
from otafl.core.inputs import open_regular
from otafl.core.problems import Path, Problem
from otafl.core.suggestions import format_near_file
from otafl.scenario.errors import ProblemLocator, ScenarioError
from otafl.scenario.keys import CHOICES, format_path, split
from otafl.scenario.yaml_source import YamlError, parse

MAX_BYTES = 500_000
"""Largest size of a scenario's file."""

FILE_KEYS = ("path", "file", "root")
"""Keys of components that name a file or folder of input."""


def read_file(file: FilePath, label: str = "") -> tuple[dict[str, Any], ProblemLocator]:
    """Return the content of a file and its places.

    The paths of input files count from the folder of the scenario's file, and are made absolute.

    label: name of the file in messages; its path if empty. Raises ScenarioError with the place if
    the file is no mapping.
    """
    text = read_text(file)
    try:
        source = parse(text)
    except YamlError as error:
        at = "".join(f":{number}" for number in error.place or ())
        raise ScenarioError([f"{file}{at}: {error}"]) from error
    if source.data is None:
        raise ScenarioError([f"{file}:1:1: is empty; a scenario begins like 'name: my_run'"])
    if not isinstance(source.data, dict):
        kind = "a list" if isinstance(source.data, list) else "a single value"
        raise ScenarioError(
            [f"{file}:1:1: is {kind}; a scenario is a mapping of keys, like 'name: my_run'"]
        )
    locator = ProblemLocator(label or str(file), source.places)
    empty = [path for path in source.empty if len(path) > 1]  # sections may be filled in later
    if empty:
        text = "{}: has no value; write null if that is meant"
        raise locator.make_error(Problem(text.format(format_path(path)), path) for path in empty)
    return locate_files(source.data, file.parent), locator


def locate_files(value: Any, folder: FilePath | str, path: Path = ()) -> Any:
    """Return a part of a scenario with absolute paths of its input files; `~` is expanded.

    A key of a user-defined component is the user's own, so it stays as it is.

    Parameters
    ----------
    value : Any
        Value of a key, or the whole scenario.
    folder : Path or str
        Folder from which relative paths count.
    path : Path
        Path of the key.
    """
    if path[:1] == ("sweep",) and len(path) == 2 and isinstance(value, list):
        own = () if path[1] == "zip" else split(str(path[1]))
        return [locate_files(one, folder, own) for one in value]
    if isinstance(value, Mapping) and ":" not in str(value.get("name", "")):
        inner = {key: (*path, *split(key)) for key in value if isinstance(key, str)}
        return {key: locate_files(one, folder, inner.get(key, ())) for key, one in value.items()}
    is_file = path != () and path[-1] in FILE_KEYS and path[:-1] in CHOICES
    if path == ("output", "folder") and isinstance(value, str):
        return os.path.expanduser(value)
    if is_file and isinstance(value, str) and value:
        return os.path.abspath(os.path.join(folder, os.path.expanduser(value)))
    return value


def read_text(file: FilePath) -> str:
    """Return the text of a scenario's file. Raises ScenarioError if it cannot be one."""
    try:
        with open_regular(file) as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError([f"{file}: {_format_unreadable(file, error)}"]) from error
    if data.startswith(HDF5):
        raise ScenarioError([f"{file}: is a result; `otafl show {file}` summarises it"])
    if len(data) > MAX_BYTES:
        raise ScenarioError(
            [f"{file}: has more than {MAX_BYTES / 1e6:g} MB, which no scenario has; give its file"]
        )
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode()) + 1
        fault = f"is no UTF-8 text (byte 0x{data[error.start]:02X}); save it as UTF-8"
        raise ScenarioError([f"{file}:{line}:{column}: {fault}"]) from error


def _format_unreadable(file: FilePath, error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        kept = file / "scenario.yaml"
        if kept.is_file():
            return f"is a folder; `otafl show {file}` shows a sweep, {kept} is its scenario"
        return "is a folder; give the YAML file of a scenario"
    near = format_near_file(file, "*.y*ml")
    return f"cannot be read ({error.strerror}){near or ';'} give the YAML file of a scenario"
