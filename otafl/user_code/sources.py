"""Content of user-defined code: hashes of its files, and the objects that Python programs give.

The hash of a module covers its file, every .py file of its package, and the modules and packages in
the same folder that its import statements name, with their imports. Comments and layout do not
count. It does not cover installed packages, imports by a computed name, and files that the module
reads.

A scenario is plain data, so it records a function or class as `module:name`. An object that a
module has under its name gets that name, and other processes import it. Functions inside functions,
lambdas, bound methods and `functools.partial` objects are kept in this process, under a name that
no other object has. Their content is not known, nor that of code without a file (a notebook's
cells), so each run counts as one of other objects.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import inspect
import re
import secrets
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from otafl.core.errors import UserError

Sources = dict[str, str]
"""File, relative to the folder of its modules -> hash of its text.

The name of an object without a file -> name of the run.
"""

OTAFL = Path(__file__).parents[1]

LIBRARIES = {OTAFL} | {
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
}
"""Folders whose code is not the user's."""

_parsing = threading.Lock()
"""Python 3.11 counts the depth of a tree for all threads together, so two cannot parse at once."""

_imported: dict[str, tuple[Any, Sources]] = {}
"""Module -> its specification, which a reload replaces, and the source it was imported from."""

_given: dict[str, Any] = {}
"""Name -> object that only this process has."""

_run: ContextVar[str] = ContextVar("_run")
"""Name of the present run."""


def __getattr__(name: str) -> Any:
    """Return a given object by its name in a scenario."""
    if name in _given:
        return _given[name]
    raise AttributeError(name)


def hash_module(name: str) -> Sources:
    """Import a user-defined module, and return the source that it was imported from."""
    module = importlib.import_module(name)
    if name not in _imported or _imported[name][0] is not module.__spec__:
        _imported[name] = module.__spec__, _hash_files(module)
    return _imported[name][1]


def check_unchanged() -> None:
    """Raise UserError if the source of a user-defined module has changed since its import."""
    for name, (spec, known) in list(_imported.items()):
        module = sys.modules.get(name)
        if name == "__main__" or module is None or module.__spec__ is not spec:
            continue  # the running program, or a module that is imported anew
        if changed := list_changed(known, _hash_files(module)):
            raise UserError(
                f"{', '.join(changed)}: changed after module {name!r} was imported; start Python "
                "anew to use it, or undo the change"
            )


@contextlib.contextmanager
def begin_run() -> Iterator[None]:
    """Name the run, in which all objects stay as they are."""
    token = _run.set(secrets.token_hex(8))
    try:
        yield
    finally:
        _run.reset(token)


def get_run() -> str:
    """Return the name of the present run; outside of a run a new one in each call."""
    return _run.get("") or secrets.token_hex(8)


@functools.cache
def hash_otafl() -> str:
    """Return the hash of otafl's own source, which changes between releases of one version."""
    return _hash_texts(*map(_read_bytes, sorted(OTAFL.rglob("*.py"))))


def hash_file(path: Path | str) -> str:
    """Return the hash of a file; that of an empty one if it cannot be read."""
    return _hash_texts(_read_bytes(Path(path)))


def hash_code(path: Path | str) -> str:
    """Return the hash of a file of Python, without comments and layout; else as `hash_file`."""
    return _hash_texts(_parse(_read_bytes(Path(path)))[1])


def list_changed(before: Sources, after: Sources) -> list[str]:
    """List the files whose hashes differ."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def is_library(file: str | Path) -> bool:
    """Return whether a file belongs to otafl, Python or an installed package."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed or not path.is_absolute() or LIBRARIES & set(path.parents))


def is_given(path: str) -> bool:
    """Return whether a `module:name` is one of this module, which only one process has."""
    return path.partition(":")[0] == __name__


def name_object(given: Any) -> str:
    """Return the `module:name` under which a scenario finds a function or class.

    Parameters
    ----------
    given : callable
        Function, class or other callable object.

    Returns
    -------
    str
        Its name.

    Raises
    ------
    UserError
        For an object that is already made, such as a module.
    """
    if hasattr(given, "forward") and not inspect.isclass(given):
        raise UserError(
            f"expected a function or class that returns a module, got a {type(given).__name__}; "
            "use lambda: module"
        )
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    if module not in sys.modules or vars(sys.modules[module]).get(name) is not given:
        inner, module = given, __name__
        while isinstance(inner, functools.partial):
            inner = inner.func
        last = re.sub(r"[^A-Za-z0-9_]", "", getattr(inner, "__name__", type(inner).__name__))
        before = (one for one, other in _given.items() if other is given)
        name = next(before, f"{last}_{secrets.token_hex(4)}")
        _given[name] = given
    return f"{module}:{name}"


def _hash_files(module: ModuleType) -> Sources:
    """Return the files that a module's hash covers, and their hashes."""
    top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
    if top == "otafl" or file is None:  # otafl has a version
        return {}
    path = Path(file).absolute()
    folders = [Path(one).absolute() for one in getattr(sys.modules.get(top), "__path__", ())]
    first = next((folder for folder in folders if folder in path.parents), path)
    root, found, places = first.parent, Sources(), [first]
    if is_library(first):
        return {f"{first.name}/*.py": _hash_texts(*map(_read_bytes, _list_files(first)))}
    for place in places:  # which grows
        for one in _list_files(place):
            imported, text = _parse(_read_bytes(one))
            found[one.relative_to(root).as_posix()] = _hash_texts(text)
            for name in imported - {"otafl"}:
                package, own = root / name, root / f"{name}.py"
                is_package = (package / "__init__.py").is_file() or not own.is_file()
                beside = package if is_package else own
                if beside.exists() and beside not in places:
                    places.append(beside)
    return found


def _list_files(place: Path) -> list[Path]:
    """List a file, or the .py files of a package that are not hidden."""
    if not place.is_dir():
        return [place]
    every = sorted(place.rglob("*.py"))
    return [one for one in every if "/." not in f"/{one.relative_to(place).as_posix()}"]


@functools.lru_cache(maxsize=1024)
def _parse(text: bytes) -> tuple[frozenset[str], bytes]:
    """Return the first parts of the names in a text's import statements, and its normal form.

    That form has no comments and layout; it is the text itself if it is no Python.
    """
    names = set()
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        with _parsing:
            tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
        text = ast.unparse(tree).encode()
    return frozenset(names), text


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _hash_texts(*texts: bytes) -> str:
    whole = hashlib.sha256()
    for text in texts:
        whole.update(hashlib.sha256(text).digest())
    return whole.hexdigest()[:16]
