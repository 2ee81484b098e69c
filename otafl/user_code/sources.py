"""Hashes of the source that user-defined modules were imported from.

The hash of a module covers its file, every .py file of its package, and the modules and packages in
the same folder that its import statements name, with their imports. Comments, docstrings and layout
do not count. It does not cover installed packages, imports by a computed name, files that the
module reads, and code without a file (a notebook's cells).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

Sources = dict[str, str]
"""File, relative to the folder of its modules -> hash of its text.

The name of an object that was given in Python -> hash of its content.
"""

MANY = 200
"""A package with more files has one hash for all of them."""

_parsing = threading.Lock()
"""A lock, because Python 3.11 counts the depth of a tree for all threads together.

Two threads that parse at the same time would fail.
"""

_imported: dict[str, Sources] = {}
"""Module -> the source that it was imported from."""


def import_and_hash(name: str) -> ModuleType:
    """Import a user-defined module, and record its source.

    No bytecode is written. Python would use old bytecode for a file that is changed within a second
    to a text of the same length.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        module = importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before
    if name not in _imported:
        _imported[name] = _hash_files(module)
    return module


def hash_module(name: str) -> Sources:
    """Return the source that a user-defined module was imported from in this program."""
    import_and_hash(name)
    return _imported[name]


@functools.cache
def hash_otafl() -> str:
    """Return the hash of otafl's own source, which changes between releases of one version."""
    package = Path(__file__).parents[1]
    return _hash_texts(*map(_read_bytes, sorted(package.rglob("*.py"))))


def hash_file(path: str) -> str:
    """Return the hash of a file; that of an empty one if it cannot be read."""
    return _hash_texts(_read_bytes(Path(path)))


def refresh() -> None:
    """Forget user-defined modules whose source has changed, so that they are imported again.

    A run calls it once, before it begins.
    """
    for name, known in list(_imported.items()):
        if name == "__main__":  # the running program, which cannot be imported again
            continue
        module = sys.modules.get(name)
        if module is None or _hash_files(module) != known:
            del _imported[name]
            _forget(name, module)


def is_library(name: str | None) -> bool:
    """Return whether a module is Python's own, otafl's or installed, and not the user's."""
    top = str(name).partition(".")[0]
    if top in sys.stdlib_module_names or top == "otafl":
        return True
    modules = [sys.modules.get(one) for one in (str(name), top) if one != "__main__"]
    places = [_find_location(module) for module in modules if module is not None]
    return any(place is not None and _is_installed(place.parent) for place in places)


def list_changed(before: Sources, after: Sources) -> list[str]:
    """List the files whose hashes differ."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _forget(name: str, module: ModuleType | None) -> None:
    """Remove a module, and all that its hash covers, from the imported ones."""
    covered = set() if module is None else set(_find_covered_files(module))
    # the list is made before any is removed: a namespace package asks its parent for its path
    gone = [
        other for other, one in list(sys.modules.items()) if covered & set(_list_locations(one))
    ]
    for other in {name, *gone} & sys.modules.keys():
        del sys.modules[other]
    importlib.invalidate_caches()


def _list_locations(module: ModuleType) -> Iterator[Path]:
    """Yield the file of a module, or the folder of a package without a file, and their parents."""
    where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if where is not None and Path(where).is_absolute():
        yield Path(where)
        yield from Path(where).parents


def _hash_files(module: ModuleType) -> Sources:
    found = {}
    for place, files in _find_covered_files(module).items():
        texts = [_read_bytes(file) for file in files]
        if not _is_installed(place.parent):
            texts = [_parse(text)[1] for text in texts]
        if len(files) > MANY:
            found[f"{place.name}/*.py"] = _hash_texts(*texts)
        else:
            root = place.parent
            pairs = zip(files, texts, strict=True)
            found |= {file.relative_to(root).as_posix(): _hash_texts(text) for file, text in pairs}
    return found


def _find_covered_files(module: ModuleType) -> dict[Path, list[Path]]:
    """Return the files and packages that a module's hash covers, and the files of each."""
    first = _find_location(module)
    found: dict[Path, list[Path]] = {}
    waiting = [] if first is None else [first]
    while waiting:
        place = waiting.pop()
        if place in found:
            continue
        files = [place]
        if place.is_dir():
            every = sorted(place.rglob("*.py"))
            files = [file for file in every if not _is_hidden(file.relative_to(place))]
        found[place] = files
        if not _is_installed(place.parent):
            texts = {_read_bytes(file) for file in files}
            waiting += _list_imported_siblings(texts, place.parent)
    return found


def _find_location(module: ModuleType) -> Path | None:
    """Return the file of a module, or the folder of its package.

    None if there is none, and for otafl's own modules, which have a version.
    """
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if top == "otafl" or file is None:
        return None
    folders = [Path(one).absolute() for one in getattr(sys.modules.get(top), "__path__", ())]
    path = Path(file).absolute()
    return next((one for one in folders if one in path.parents), path)


def _list_imported_siblings(texts: Iterable[bytes], root: Path) -> list[Path]:
    """List the modules and packages in a folder that the import statements of texts name."""
    named = frozenset[str]().union(*(_parse(text)[0] for text in texts)) - {"otafl"}
    found = []
    for name in sorted(named & {path.stem for path in root.glob("*")}):
        package, file = root / name, root / f"{name}.py"
        if file.is_file() and not (package / "__init__.py").is_file():
            found.append(file)
        elif package.is_dir():
            found.append(package)
    return found


@functools.lru_cache(maxsize=1024)
def _parse(text: bytes) -> tuple[frozenset[str], bytes]:
    """Return the first parts of the names in a text's import statements, and its normal form.

    That form has no comments, docstrings and layout; it is the text itself if it is no Python. A
    sweep calls this again before each stack, and most texts have not changed.
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
        text = ast.unparse(_Statements().visit(tree)).encode()
    return frozenset(names), text


class _Statements(ast.NodeTransformer):
    """Removal of docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_installed(root: Path) -> bool:
    """Return whether a folder is one of Python's own, whose other files are not the user's."""
    if root.name in ("site-packages", "dist-packages"):
        return True
    return root in (Path(path) for path in sysconfig.get_paths().values())


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
