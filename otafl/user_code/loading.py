"""Import of user-defined code, which a scenario names `module:callable`, and its errors."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from otafl.core.errors import UserError
from otafl.core.suggestions import format_suggestion
from otafl.user_code import sources
from otafl.user_code.sources import Sources

TRACEBACK = "OTAFL_TRACEBACK"
"""The environment variable with which commands also print the traceback."""

_untrusted_source: ContextVar[str | None] = ContextVar("_untrusted_source", default=None)
"""The file whose names must not be imported."""

_keys: dict[str, dict[str, str]] = {}
"""File of user-defined code -> the `module:callable` in it -> the scenario's key of each."""


@contextlib.contextmanager
def guard_imports(file: object, trust: bool) -> Iterator[None]:
    """Refuse to import the code that a file of another person names, unless `trust` is true."""
    token = _untrusted_source.set(None if trust else str(file))
    try:
        yield
    finally:
        _untrusted_source.reset(token)


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
    """
    if (stranger := _untrusted_source.get()) is not None:
        raise UserError(
            f"{key}: {stranger} names {path!r}, code that would be run; trust=True (--trust) runs "
            "it, which is for files from people whose programs you would run"
        )
    module, _, name = path.partition(":")
    try:
        top = module.partition(".")[0]
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            # only now, and last: no other module there takes the place of a library's
            sys.path.append(os.getcwd())
        sources.hash_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{key}: {path!r}: {error}; is it in the working folder or installed?"
        ) from error
    except Exception as error:  # any error of user-defined code during its import
        said = " ".join(str(error).split())
        raise UserError(
            f"{key}: {path!r}: {module!r} cannot be imported ({type(error).__name__}"
            f"{format_place(error)}: {said})"
        ) from error
    try:
        found = pkgutil.resolve_name(path)
    except AttributeError as error:
        raise UserError(
            f"{key}: {name!r} is an object that another Python process was given; give it again, "
            "or put it into a module"
            if sources.is_given(path)
            else f"{key}: {path!r}: {name!r} does not exist in module {module!r}"
        ) from error
    if not callable(found):
        raise UserError(f"{key}: {path!r}: {name!r} is not callable in module {module!r}")
    definition = found
    while isinstance(definition, functools.partial):
        definition = definition.func
    if not (inspect.isroutine(definition) or inspect.isclass(definition)):
        definition = type(definition)
    home = str(definition.__module__)
    file = getattr(sys.modules.get(home), "__file__", None)
    is_of_python = home.partition(".")[0] in sys.stdlib_module_names and (
        file is None or sources.is_library(Path(file).absolute())
    )
    if inspect.isbuiltin(definition) or is_of_python:  # it must not run on a scenario
        raise UserError(
            f"{key}: {path!r} is built in or part of Python itself; expected a function or class "
            "of your own, or of an installed package"
        )
    with contextlib.suppress(TypeError, OSError):  # code without a file
        _keys.setdefault(inspect.getfile(inspect.unwrap(definition)), {})[path] = key
    return found


def hash_sources(path: str, key: str) -> Sources:
    """Return the files that a user-defined `module:callable` was imported from, and their hashes.

    An object without a file has the name of the run in place of a hash. Raises UserError as `load`.
    """
    load(path, key)
    module = path.partition(":")[0]
    if sources.is_given(path) or getattr(sys.modules[module], "__file__", None) is None:
        return {path: sources.get_run()}
    return sources.hash_module(module)


def load_checked(path: str, key: str, options: Mapping[str, Any], *positional: str) -> Any:
    """Return a user-defined callable that accepts the keys of its section.

    positional: names for the arguments that it gets by position. Raises UserError if there is no
    such callable, or the keys do not fit it.
    """
    function, section = load(path, key), key.removesuffix(".name")
    try:
        inspect.signature(function).bind(*positional, **options)
    except ValueError as error:
        raise UserError(
            f"{section}: {path!r} does not state its parameters; wrap it in a Python function"
        ) from error
    except TypeError as error:
        parameters = list(inspect.signature(function).parameters.values())[len(positional) :]
        unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
        known = [one.name for one in parameters if one.kind not in unnamed]
        missing = re.fullmatch(r"missing a required .*argument: '(\w+)'", str(error))
        given = "".join(f"{name}, " for name in positional)
        text = f"{section}: {path!r} does not fit its arguments ({given}**keys): {error}"
        if missing and missing[1] in known:
            text = f"{section}.{missing[1]}: must be given, as {path!r} has no default for it"
        elif unknown := next((word for word in options if word not in known), None):
            hint = format_suggestion(unknown, known)
            keys = f" (known keys: {', '.join(known)})" if known else ", which has no keys"
            text = f"{section}.{unknown}: unknown key of {path!r}{hint}{keys}"
        raise UserError(text) from error
    return function


def explain_error(error: Exception) -> Exception:
    """Return the error, or the UserError that describes it if user-defined code raised it.

    The UserError states the key, the object, the line and the text; its cause is the error.
    """
    if isinstance(error, UserError):
        return error
    for frame in traceback.extract_tb(error.__traceback__):
        if named := _keys.get(frame.filename):
            own = [path for path in named if path.endswith(f":{frame.name}")] or list(named)
            return _describe_error(error, f"{named[own[0]]}: {' or '.join(map(repr, own))}")
    return error


@contextlib.contextmanager
def attribute_errors(path: str, key: str) -> Iterator[None]:
    """Report any exception inside as an error of the user-defined `module:callable`.

    The line does not matter: a module made of torch's layers has no line in a user's file.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _describe_error(error, f"{key}: {path!r}") from error


def _describe_error(error: Exception, whose: str) -> UserError:
    line, said = _find_line(error), " ".join(str(error).split())
    if isinstance(error, AttributeError) and error.name:
        said += format_suggestion(error.name, dir(error.obj))
    source = f"\n    {line.line}" if line else ""
    described = UserError(
        f"{whose} raises {type(error).__name__}{format_place(error)}: {said}{source}\n"
        f"  {TRACEBACK}=1 shows the traceback"
    )
    described.__cause__ = error
    return described


def format_place(error: BaseException) -> str:
    """Return " at file:line" for the user-defined code that raised an error, if there is any."""
    line = _find_line(error)
    return f" at {_format_file(line.filename)}:{line.lineno}" if line else ""


def locate(function: Any) -> str:
    """Return " (file:line)" of a user-defined function; empty for any other."""
    code = getattr(function, "__code__", None)
    if code is None or (code.co_filename not in _keys and sources.is_library(code.co_filename)):
        return ""
    return f" ({_format_file(code.co_filename)}:{code.co_firstlineno})"


def _find_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost line of user-defined code that an error passed through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in _keys or not sources.is_library(frame.filename):
            return frame
    return None


def _format_file(name: str) -> str:
    """Return the path of a file, relative to the working folder if it is inside."""
    file = Path(name)
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else name
