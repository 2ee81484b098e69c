"""Messages for exceptions of user-defined code: the object, the line and its arguments.

Python's traceback leads through the round to a line of the user's file. The message contains that
line, the name in the scenario, and the available data: fields of objects, shapes of tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import math
import os
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from otafl.core.errors import UserError
from otafl.core.suggestions import format_guess

TRACEBACK = "OTAFL_TRACEBACK"
"""The environment variable with which commands also print the traceback."""

MAX_ITEMS = 24
"""Largest number of fields or keys of an argument that are listed."""

_OTAFL = Path(__file__).parents[1]
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = {Path(path) for name, path in sysconfig.get_paths().items() if name in _INSTALLED}

_loaded: dict[str, str] = {}
"""User-defined `module:callable` -> the scenario's key that named it last."""


def remember(path: str, key: str) -> None:
    """Record that a user-defined `module:callable` is used under a key."""
    _loaded[path] = key


def explain_error(error: Exception) -> Exception:
    """Return the error, or a UserError that describes it if user-defined code raised it.

    The error is then the cause of the UserError.
    """
    if isinstance(error, UserError):
        return error
    places = list(_iterate_user_frames(error))
    entry = next(
        (place for place in places if _get_module_name(place[0]) in _list_user_modules()), None
    )
    if entry is None:
        return error
    return _make_error(
        f"{_format_object(entry[0])} {_format_raise(error, places[-1])}", error, entry[0]
    )


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
        places = list(_iterate_user_frames(error))
        entry, at = (places[0][0], places[-1]) if places else (None, None)
        raise _make_error(f"{key}: {path!r} {_format_raise(error, at)}", error, entry) from error


def format_place(error: BaseException) -> str:
    """Return " at file:line" for the user-defined code that raised an error, if there is any."""
    found = list(_iterate_user_frames(error))
    return f" at {_format_frame(found[-1])}" if found else ""


def locate(function: Any) -> str:
    """Return " (file:line)" of a user-defined function; empty for any other."""
    code = getattr(function, "__code__", None)
    if code is None or _is_library(code.co_filename):
        return ""
    return f" ({_format_file(code.co_filename)}:{code.co_firstlineno})"


def is_traceback_enabled() -> bool:
    """Return whether the user has requested tracebacks."""
    return os.environ.get(TRACEBACK, "") not in ("", "0")


_Place = tuple[FrameType, int]
"""A frame, and its current line."""


def _iterate_user_frames(error: BaseException) -> Iterator[_Place]:
    """Yield the frames of user-defined code that an error passed through, the outermost first."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _get_module_name(frame) in _list_user_modules() or not _is_library(
            frame.f_code.co_filename
        ):
            yield frame, line


def _list_user_modules() -> set[str]:
    return {path.partition(":")[0] for path in _loaded}


def _get_module_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _is_library(file: str) -> bool:
    """Return whether a file belongs to otafl, Python or an installed package."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed or not path.is_absolute() or {_OTAFL, *_LIBRARIES} & set(path.parents))


def _format_object(entry: FrameType) -> str:
    """Name the object whose code a frame runs: `key: 'module:callable'`.

    All objects of its module are named if the frame does not decide.
    """
    own = [path for path in _loaded if path.partition(":")[0] == _get_module_name(entry)]
    first = entry.f_code.co_qualname.partition(".")[0]
    exact = [path for path in own if path.partition(":")[2] == first] or own
    key = _loaded[exact[0]]
    return f"{key}: {' or '.join(repr(path) for path in exact)}"


def _format_raise(error: Exception, frame: _Place | None) -> str:
    where = "" if frame is None else f" at {_format_frame(frame)}"
    said = " ".join(str(error).split())
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        said += format_guess(
            next(iter(get_close_matches(error.name, _list_public_names(error.obj), 1)), None)
        )
    line = "" if frame is None else linecache.getline(frame[0].f_code.co_filename, frame[1]).strip()
    return f"raises {type(error).__name__}{where}: {said}" + (f"\n    {line}" if line else "")


def _make_error(text: str, error: Exception, entry: FrameType | None) -> UserError:
    lines = [text]
    given = {} if entry is None else _get_arguments(entry)
    obj = error.obj if isinstance(error, AttributeError) else None
    known = obj is None or isinstance(obj, ModuleType) or any(obj is one for one in given.values())
    if not known:
        lines.append(_wrap_text(f"  it has: {', '.join(_list_public_names(obj)[:MAX_ITEMS])}"))
    if entry is not None and given:
        lines.append(f"  {entry.f_code.co_name} was given")
        lines += [
            _wrap_text(f"    {name}: {_describe_value(value)}") for name, value in given.items()
        ]
    lines.append(f"  {TRACEBACK}=1 shows the traceback")
    error_with_place = UserError("\n".join(lines))
    error_with_place.__cause__ = error
    return error_with_place


def _get_arguments(frame: FrameType) -> dict[str, Any]:
    """Return the arguments of a function that it has not deleted."""
    code, local = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    names = [name for name in code.co_varnames[:count] if name != "self"]
    return {name: local[name] for name in names if name in local}


def _list_public_names(value: Any) -> list[str]:
    """List the public names of an object, a dataclass's fields first."""
    fields = [one.name for one in dataclasses.fields(value)] if _is_data(value) else []
    every = (one for one in dir(value) if not one.startswith("_"))
    return list(dict.fromkeys([*fields, *every]))


def _describe_value(value: Any) -> str:
    """Describe a value: a tensor's shape and type, an object's fields, a mapping's keys."""
    if isinstance(value, Mapping):
        return (
            f"keys {_format_items({repr(key): value[key] for key in value})}"
            if value
            else "no keys"
        )
    if _is_data(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        more = "".join(f", {name}" for name in _list_public_names(value) if name not in fields)
        return f"{type(value).__name__} with {_format_items(fields)}{more}"
    plain = _format_plain(value)
    if plain or not type(value).__module__.startswith("otafl."):
        return plain or type(value).__name__
    return f"{type(value).__name__} with {', '.join(_list_public_names(value)[:MAX_ITEMS])}"


def _format_items(values: Mapping[str, Any]) -> str:
    parts = [f"{key} {_format_plain(one) or type(one).__name__}" for key, one in values.items()]
    return ", ".join(parts[:MAX_ITEMS]) + (", ..." if len(parts) > MAX_ITEMS else "")


def _format_plain(value: Any) -> str:
    """Describe a tensor, a number, a short text, a list or the keys of a mapping; else nothing."""
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return f"{list(shape)} {str(value.dtype).removeprefix('torch.')}"
    if (
        isinstance(value, list | tuple)
        and len(value) <= MAX_ITEMS
        and all(map(_format_plain, value))
    ):
        return f"[{', '.join(map(_format_plain, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(map(str, value))}}}"
    if value is None or isinstance(value, bool | int | float | str):
        text = f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    return ""


def _wrap_text(text: str) -> str:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, 96, subsequent_indent=indent, break_on_hyphens=False)


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value)


def _format_frame(place: _Place) -> str:
    return f"{_format_file(place[0].f_code.co_filename)}:{place[1]}"


def _format_file(name: str) -> str:
    """Return the path of a file, relative to the working folder if it is inside."""
    file = Path(name)
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
