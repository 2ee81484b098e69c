"""Import of user-defined components, which a scenario names `module:callable`."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otafl.core.errors import UserError
from otafl.user_code import error_origin, objects, sources
from otafl.user_code.sources import Sources

_untrusted_source: ContextVar[str | None] = ContextVar("_stranger", default=None)
"""The file whose names must not be imported."""

_code: ContextVar[bool] = ContextVar("_code", default=True)
"""Whether the code that a scenario names may be imported."""


class NotImported(Exception):
    """User-defined code was needed, but not imported, within `disable_imports`."""


@contextlib.contextmanager
def guard_imports(file: object, trust: bool) -> Iterator[None]:
    """Refuse to import the code that a file of another person names, unless `trust` is true."""
    token = _untrusted_source.set(None if trust else str(file))
    try:
        yield
    finally:
        _untrusted_source.reset(token)


@contextlib.contextmanager
def disable_imports() -> Iterator[None]:
    """Import no code that a scenario names; access to such code raises NotImported."""
    token = _code.set(False)
    try:
        yield
    finally:
        _code.reset(token)


def is_import_enabled() -> bool:
    """Return whether a scenario's own code is imported, unlike within `disable_imports`."""
    return _code.get()


def load(path: str, key: str) -> Any:
    """Return the callable of a user-defined `module:callable`.

    A module that is not installed is searched for in the working folder.

    Parameters
    ----------
    path : str
        `module:callable`.
    key : str
        Key of the scenario that names it, for messages.

    Raises
    ------
    UserError
        If there is none, it is Python's own, or the file that names it is not trusted.
    NotImported
        Within `disable_imports`.
    """
    if not _code.get():
        raise NotImported(path)
    stranger = _untrusted_source.get()
    if stranger is not None:
        raise UserError(
            f"{key}: {stranger} names {path!r}, code that would be run; trust=True (--trust) runs "
            "it, which is for files from people whose programs you would run"
        )
    module_name, _, attribute = path.partition(":")
    try:
        top = module_name.partition(".")[0]
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            # only now, and last: no other module there takes the place of a library's
            sys.path.append(os.getcwd())
        module = sources.import_and_hash(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{key}: {path!r}: {error}; is it in the working folder or installed?"
        ) from error
    except Exception as error:  # any error of user-defined code during its import
        said = " ".join(str(error).split())
        raise UserError(
            f"{key}: {path!r}: {module_name!r} cannot be imported ({type(error).__name__}"
            f"{error_origin.format_place(error)}: {said})"
        ) from error
    found = getattr(module, attribute, None)
    if found is None and objects.is_given(path):
        raise UserError(
            f"{key}: {attribute!r} is an object that another Python process was given; give it "
            "again, or put it into a module"
        )
    if not callable(found):
        fault = "is not callable" if hasattr(module, attribute) else "does not exist"
        raise UserError(f"{key}: {path!r}: {attribute!r} {fault} in module {module_name!r}")
    if _is_builtin(found):
        raise UserError(
            f"{key}: {path!r} is built in or part of Python itself; expected a function or class "
            "of your own, or of an installed package"
        )
    error_origin.remember(path, key)
    return found


def _is_builtin(function: Any) -> bool:
    """Return whether a callable is built in, or of the standard library.

    Such a callable has another purpose and must not run on the contents of a scenario.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isbuiltin(function):
        return True
    named = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    module = str(getattr(named, "__module__", ""))
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return True
    library = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return bool(library & set(Path(file).parents)) and "site-packages" not in Path(file).parts


def hash_sources(path: str, key: str) -> Sources:
    """Return the files that a user-defined `module:callable` was imported from, and their hashes.

    An object that was given in Python also has the hash of its content. It stands for the file of
    the program itself. Raises UserError as `load`.
    """
    found, module = load(path, key), path.partition(":")[0]
    files = dict(sources.hash_module(module))
    if not objects.is_recorded(path):
        return files
    if module == "__main__":
        files.pop(Path(getattr(sys.modules[module], "__file__", None) or "").name, None)
    return files | {path: objects.hash_object(path, found)}


@dataclass(frozen=True)
class AcceptedKeys:
    """Keyword arguments of a callable.

    names: all; required: those without a default. any: whether it accepts any others.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    any: bool


def get_accepted_keys(function: Any, positional: int = 0) -> AcceptedKeys:
    """Return the keys of a section that a user-defined callable accepts.

    positional: the number of arguments before them, which it gets by position.
    """
    parameters = list(inspect.signature(function).parameters.values())
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    own = [one for one in named if one.name not in [p.name for p in parameters[:positional]]]
    return AcceptedKeys(
        names=tuple(one.name for one in own),
        required=tuple(one.name for one in own if one.default is one.empty),
        any=any(one.kind is one.VAR_KEYWORD for one in parameters),
    )


def load_checked(path: str, key: str, options: dict[str, Any], *positional: str) -> Any:
    """Return a user-defined callable.

    Raises UserError if there is none, or the keys of its section do not fit it.
    """
    function = load(path, key)
    check_keys(function, path, key, options, *positional)
    return function


def call(path: str, key: str, options: dict[str, Any]) -> Any:
    """Return the result of a user-defined callable for the keys of its section.

    Raises UserError if they do not fit it. Its own errors pass through.
    """
    return load_checked(path, key, options)(**options)


def check_keys(
    function: Any, path: str, key: str, options: dict[str, Any], *positional: str
) -> None:
    """Raise UserError if the keys of a section do not fit a user-defined callable.

    positional: names for the arguments that it gets by position.
    """
    section = key.removesuffix(".name")
    try:
        inspect.signature(function).bind(*positional, **options)
    except ValueError as error:
        raise UserError(
            f"{section}: {path!r} does not state its parameters; wrap it in a Python function"
        ) from error
    except TypeError as error:
        raise UserError(f"{section}: {path!r} does not fit the section's keys: {error}") from error
