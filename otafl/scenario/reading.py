"""Reading of a scenario's file: its text, its content, and the places of its keys.

A scenario starts from a preset or from another file by the key `extends`. The base is merged into
the scenario when it is read. A scenario has the same hash, whether its keys are written out or come
from a base.
"""

from __future__ import annotations

import codecs
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from otafl.core.files import HDF5, open_regular
from otafl.core.presets import list_presets
from otafl.core.problems import Path, Problem
from otafl.core.suggestions import format_near_file, format_suggestion
from otafl.scenario.errors import ProblemLocator, ScenarioError, format_value
from otafl.scenario.keys import CHOICES, format_path, get_value, split
from otafl.scenario.yaml_source import YamlError, parse

INPUT_FILES = ("path", "file")
"""Keys of components that name a file which results depend on."""

MAX_BYTES = 1_000_000
"""Largest size of a scenario's file."""

FILE_KEYS = (*INPUT_FILES, "root")
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
    label = label or str(file)
    locator = ProblemLocator(label, {path: (label, *at) for path, at in source.places.items()})
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
        inner = {key: split(format_path((*path, key))) for key in value if isinstance(key, str)}
        return {key: locate_files(one, folder, inner.get(key, ())) for key, one in value.items()}
    if path == ("data", "dataset") and isinstance(value, str):  # a folder, or a name on the hub
        found = os.path.abspath(os.path.join(folder, os.path.expanduser(value)))
        return found if os.path.exists(found) else value
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
        if (file / "sweep.json").is_file():
            return f"is a folder; `otafl show {file}` shows a sweep"
        return "is a folder; give the YAML file of a scenario"
    near = format_near_file(file, "*.y*ml") if isinstance(error, FileNotFoundError) else ""
    return f"cannot be read ({error.strerror}){near or ';'} give the YAML file of a scenario"


EXTENDS = "extends"
"""Key that names a preset or a file."""

Base = tuple[dict[str, Any], ProblemLocator]


def add_base(
    tree: dict[str, Any],
    locator: ProblemLocator,
    folder: FilePath,
    seen: tuple[FilePath, ...] = (),
) -> Base:
    """Return a scenario with the keys of the base that it names, and the places of all keys.

    Parameters
    ----------
    tree : dict
        The scenario.
    locator : ProblemLocator
        The places of its keys.
    folder : Path
        Folder to which the path of a base is relative.
    seen : tuple of Path, optional
        Files that have led to this one.

    Raises
    ------
    ScenarioError
        If there is no such base, or if files extend each other in a circle.
    """
    if EXTENDS not in tree:
        return tree, locator
    tree = dict(tree)
    file, label = _find_base(tree.pop(EXTENDS), locator, folder)
    if file.resolve() in seen:
        text = f"extends: {file}: files extend each other in a circle; let one of them extend none"
        raise locator.make_error([Problem(text, (EXTENDS,))])
    try:
        base, places = read_file(file, label)
    except ScenarioError as error:
        raise locator.make_error([Problem(f"extends: {error}", (EXTENDS,))]) from error
    base, places = add_base(base, places, file.parent, (*seen, file.resolve()))
    base.pop("name", None)
    problems = list(_find_swept(base, tree))
    if problems:
        raise locator.make_error(problems)
    merged = _merge(base, tree, ())
    own = {(), ("name",), *locator.places}
    inherited = {
        path: at
        for path, at in places.places.items()
        if path not in own and get_value(merged, path) == get_value(base, path)
    }
    return merged, replace(locator, places=inherited | dict(locator.places))


def _find_base(given: Any, locator: ProblemLocator, folder: FilePath) -> tuple[FilePath, str]:
    """Return the file of a base, and its name in messages."""
    presets = list_presets()
    text = ""
    if not isinstance(given, str) or not given:
        text = f"got {format_value(given)}; must be the name of a preset, or a YAML file"
    elif given in presets:
        return presets[given], f"preset {given}"
    elif "/" not in given and not given.endswith((".yaml", ".yml")):
        hint = format_suggestion(given, presets) or ";"
        text = f"no preset {given!r}{hint} expected {', '.join(presets)}, or a file like base.yaml"
    if text:
        raise locator.make_error([Problem(f"extends: {text}", (EXTENDS,))])
    file = folder / given
    return file, str(file)


def _merge(base: Mapping[str, Any], tree: Mapping[str, Any], above: Path) -> dict[str, Any]:
    """Return the keys of both; those of the tree hold.

    Sections merge key by key, unless they choose different components. The sweep and lists are
    replaced.
    """
    merged = dict(base)
    for key in tree:
        path = (*above, key)
        choice = CHOICES.get(path)
        old, new = base.get(key), tree[key]
        if choice is not None:  # a text is the name of its component
            old, new = ({"name": one} if isinstance(one, str) else one for one in (old, new))
        merged[key] = tree[key]
        if isinstance(old, Mapping) and isinstance(new, Mapping) and path != ("sweep",):
            names = [one.get("name", choice.default_name) for one in (old, new)] if choice else []
            if not names or "name" not in new or names[0] == names[1]:
                merged[key] = _merge(old, new, path)
    return merged


def _find_swept(base: Mapping[str, Any], tree: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the keys that a base sweeps, and that the scenario sets without a sweep of its own."""
    sweep = base.get("sweep")
    if "sweep" in tree or not isinstance(sweep, Mapping):
        return
    rows = sweep.get("zip", ())
    joint = itertools.chain(*rows) if isinstance(rows, list) else ()
    for key in dict.fromkeys((*sweep, *joint)):
        path = split(str(key).removesuffix(".name"))
        if get_value(tree, path) is not None:
            text = "is swept by the base; give sweep as well, or sweep: {} for no sweep"
            yield Problem(f"{format_path(path)}: {text}", path)
