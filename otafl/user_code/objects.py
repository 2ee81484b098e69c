"""Names and contents of functions and classes that a scenario in Python gives as objects.

A scenario is plain data, so it records `module:name`. An object that a module has under its name
gets that name, and other processes import it. Functions inside functions, lambdas, bound methods
and `functools.partial` objects are kept in this process. Their name ends with a hash of their
content: their code and all values that they use.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import inspect
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextvars import ContextVar
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from otafl.core.errors import UserError
from otafl.user_code import sources

ATOMS = {type(None), type(...), bool, int, float, complex, str, bytes}
"""Types of values that their text describes."""

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


@contextlib.contextmanager
def begin_run() -> Iterator[None]:
    """Import changed modules anew, and describe each object only once, before the run uses it."""
    sources.refresh()
    token = _contents.set({})
    try:
        yield
    finally:
        _contents.reset(token)


def hash_object(path: str, found: Any) -> str:
    """Return the hash of the content of the object that a `module:name` names."""
    held = _contents.get({})
    if path not in held:
        held[path] = _hash_content(found)[0]
    return held[path]


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
    if isinstance(value, FunctionType | type) and sources.is_library(value.__module__):
        return [value.__module__, value.__qualname__]
    if isinstance(value, FunctionType):
        return _take_function_apart(value)
    if isinstance(value, type):
        return _take_class_apart(value)
    if isinstance(value, CodeType):
        return _take_code_apart(value)
    if isinstance(value, property | classmethod | staticmethod):
        return [getattr(value, name, None) for name in ("__func__", "fget", "fset")]
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):  # a name; a function that caches its results wraps another
        return [value.__module__, reduced, getattr(value, "__wrapped__", None)]
    return [list(one) if isinstance(one, Iterator) else one for one in reduced]


def _take_function_apart(function: FunctionType) -> list[Any]:
    """List the code of a function, and the values that it reads."""
    codes = list(_iterate_codes(function.__code__))
    names = {name for code in codes for name in code.co_names}
    read = {
        one.argval
        for code in codes
        for one in dis.get_instructions(code)
        if one.opname.startswith("LOAD_") and one.opname.endswith(("GLOBAL", "GLOBALS", "NAME"))
    }
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells}
    values = _list_read({**function.__globals__, **free}, read | free.keys(), names)
    own = function.__defaults__, function.__kwdefaults__, vars(function)
    return [function.__code__, *own, *values]


def _list_read(space: Mapping[str, Any], read: Set[str], names: Set[str]) -> list[Any]:
    """List the values that code reads from a namespace, and from the user's modules in it.

    names: what the code reads from anything.
    """
    found = []
    for name in sorted(read & space.keys()):
        value = space[name]
        if isinstance(value, ModuleType) and not sources.is_library(value.__name__):
            value = _list_read(vars(value), names - {name}, names - {name})
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


def _take_code_apart(code: CodeType) -> list[Any]:
    """List the arguments and instructions of code, without its lines and docstrings."""
    steps = [(one.opname, one.argval) for one in dis.get_instructions(code)]
    unread = ("__doc__", "__firstlineno__")
    kept = [a for a, b in pairwise([*steps, ("", None)]) if b[1] not in unread]
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    return [flags, counts, code.co_varnames, code.co_exceptiontable, *kept]


def _iterate_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code and the code of the functions and classes in it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _iterate_codes(value)
