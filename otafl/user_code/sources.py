"""Content of user-defined code: hashes of its files and of the objects that Python programs give.

The hash of a module covers its file, every .py file of its package, and the modules and packages in
the same folder that its import statements name, with their imports. Comments and layout do not
count. It does not cover installed packages, imports by a computed name, files that the module
reads, and code without a file (a notebook's cells).

A scenario is plain data, so it records a function or class as `module:name`. An object that a
module has under its name gets that name, and other processes import it. Functions inside functions,
lambdas, bound methods and `functools.partial` objects are kept in this process. Their name ends
with a hash of their content: their code, without comments, and all values that they use.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import inspect
import operator
import re
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping, Set
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from otafl.core.errors import UserError

Sources = dict[str, str]
"""File, relative to the folder of its modules -> hash of its text.

The name of an object that was given in Python -> hash of its content.
"""

OTAFL = Path(__file__).parents[1]

LIBRARIES = {OTAFL} | {
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
}
"""Folders whose code is not the user's."""

ATOMS = {type(None), type(...), bool, int, float, complex, str, bytes}
"""Types of values that their text describes."""

_parsing = threading.Lock()
"""Python 3.11 counts the depth of a tree for all threads together, so two cannot parse at once."""

_imported: dict[str, tuple[Any, Sources]] = {}
"""Module -> its specification, which a reload replaces, and the source it was imported from."""

_given: dict[str, Any] = {}
"""Name -> object that only this process has."""

_unknown: dict[str, list[Any]] = {}
"""Name of a given object -> values that it uses and whose content is not known."""

_recorded: set[str] = set()
"""Names of all objects that were given, here or where results were computed."""

_contents: ContextVar[dict[str, str]] = ContextVar("_contents")
"""Name -> content of an object when the present run began."""


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
    """Check that modules are unchanged, and describe each object only once in the run."""
    check_unchanged()
    token = _contents.set({})
    try:
        yield
    finally:
        _contents.reset(token)


@functools.cache
def hash_otafl() -> str:
    """Return the hash of otafl's own source, which changes between releases of one version."""
    return _hash_texts(*map(_read_bytes, sorted(OTAFL.rglob("*.py"))))


def hash_file(path: str) -> str:
    """Return the hash of a file; that of an empty one if it cannot be read."""
    return _hash_texts(_read_bytes(Path(path)))


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


def is_recorded(path: str) -> bool:
    """Return whether results record the content of the object that a `module:name` names."""
    return path in _recorded


def record(names: Iterable[str]) -> None:
    """Record the content of the objects among names, as where they were given."""
    _recorded.update(name for name in names if ":" in name)


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
        module, name = __name__, _choose_name(given)
        _given[name] = given
    record([f"{module}:{name}"])
    return f"{module}:{name}"


def hash_object(path: str, found: Any) -> str:
    """Return the hash of the content of the object that a `module:name` names."""
    held = _contents.get({})
    if path not in held:
        held[path] = _hash_content(found)[0]
    return held[path]


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


def _is_library_module(name: str | None) -> bool:
    """Return whether a module is Python's own, otafl's or installed, and not the user's."""
    if str(name).partition(".")[0] in {*sys.stdlib_module_names, "otafl"}:
        return True
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return file is not None and name != "__main__" and is_library(Path(file).absolute())


def _choose_name(given: Any) -> str:
    """Return a name with the content of an object, and a number if that is not all known."""
    inner = given
    while isinstance(inner, functools.partial):
        inner = inner.func
    last = getattr(inner, "__name__", type(inner).__name__)
    content, unknown = _hash_content(given)
    label = f"{re.sub(r'[^A-Za-z0-9_]', '', last)}_{content[:8]}"
    number, name = 1, label
    while any(map(operator.is_not, _unknown.setdefault(name, unknown), unknown)):
        number += 1
        name = f"{label}_{number}"
    return name


def _hash_content(given: Any) -> tuple[str, list[Any]]:
    """Return the hash of the code of an object and of all values that it uses.

    Also return the values whose content is not known, such as locks, open files and objects without
    attributes. They count by their type.
    """
    digest, unknown, waiting = hashlib.sha256(), [], [given]
    seen: dict[int, tuple[int, Any]] = {}  # with the objects, so that none gives its id to another
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in ATOMS:
            text = value if kind is bytes else repr(value).encode()
            digest.update(f"{kind.__name__} {len(text)} ".encode() + text)
        elif id(value) in seen:
            digest.update(f"seen {seen[id(value)][0]} ".encode())
        else:
            if kind is not tuple:
                seen[id(value)] = len(seen), value
            try:
                parts = _take_apart(value)
                is_known = kind.__repr__ is not object.__repr__ or value.__getstate__()
            except Exception:  # of the user's own methods, or of a value without readable content
                parts, is_known = [], False
            unknown += [] if is_known or value is given else [value]
            digest.update(f"{kind.__qualname__} {len(parts)} ".encode())
            waiting += reversed(parts)
    return digest.hexdigest()[:16], unknown


def _take_apart(value: Any) -> list[Any]:
    """List simpler values that together describe a value."""
    kind = type(value)
    if kind in (list, tuple):
        return list(value)
    if kind in (set, frozenset):
        return sorted(value, key=repr)
    if isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ())):
        tensor: Any = value
        whole = tensor.detach().cpu().reshape(-1).view(sys.modules["torch"].uint8).numpy()
        return [str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad, whole]
    if isinstance(value, ModuleType):
        return [value.__name__]
    if isinstance(value, FunctionType | type) and _is_library_module(value.__module__):
        return [value.__module__, value.__qualname__]
    if isinstance(value, FunctionType):
        return _take_function_apart(value)
    if isinstance(value, type):
        return _take_class_apart(value)
    if isinstance(value, CodeType):
        code = value.co_code, value.co_consts, value.co_exceptiontable, value.co_flags
        counts = value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount
        return [*code, *counts, value.co_names, value.co_varnames, value.co_freevars]
    if isinstance(value, property | classmethod | staticmethod):
        return [getattr(value, name, None) for name in ("__func__", "fget", "fset")]
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):  # a name; a function that caches its results wraps another
        return [value.__module__, reduced, getattr(value, "__wrapped__", None)]
    return [list(one) if isinstance(one, Iterator) else one for one in reduced]


def _take_function_apart(function: FunctionType) -> list[Any]:
    """List the code of a function, and the values that it reads.

    A global value whose name the function only has as an attribute counts too.
    """
    names = {name for code in _iterate_codes(function.__code__) for name in code.co_names}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells}
    values = _list_read({**function.__globals__, **free}, names | free.keys())
    own = function.__defaults__, function.__kwdefaults__, vars(function)
    return [function.__code__, *own, *values]


def _list_read(space: Mapping[str, Any], names: Set[str]) -> list[Any]:
    """List the values that code with these names reads from a namespace and the user's modules."""
    found = []
    for name in sorted(names & space.keys()):
        value = space[name]
        if isinstance(value, ModuleType) and not _is_library_module(value.__name__):
            value = _list_read(vars(value), names - {name})
        found.append((name, value))
    return found


def _take_class_apart(kind: type[Any]) -> list[Any]:
    """List the bases, methods and attributes of a class, and the fields of its settings."""
    own = {
        name: value
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType) or not re.fullmatch("__.*__|_abc_impl", name)
    }
    fields = kind.model_fields if issubclass(kind, BaseModel) else {}
    return [kind.__qualname__, kind.__bases__, sorted(own.items()), dict(fields)]


def _iterate_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and the code of the functions and classes in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _iterate_codes(value)
