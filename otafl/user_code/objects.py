"""Names of functions and classes that a scenario in Python gives as objects.

A scenario is plain data, so it records `module:name`. An object that a module has under its name
gets that name, and everything works as with a text: other processes import it, and changes of its
file are noticed. Functions inside functions, lambdas and `functools.partial` objects are kept in
this process. Their name ends with a hash of their code and of the values that they use.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
from typing import Any

from otafl.core.errors import UserError

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_given: dict[str, Any] = {}
"""Name -> object that only this process has."""


def __getattr__(name: str) -> Any:
    """Return a given object by its name in a scenario."""
    if name in _given:
        return _given[name]
    raise AttributeError(name)


def is_given(path: str) -> bool:
    """Return whether a `module:name` is one of this module, which only one process has."""
    return path.partition(":")[0] == __name__


def name_object(given: Any) -> str:
    """Return the `module:name` under which a scenario finds a function or class.

    Parameters
    ----------
    given : callable
        Function, class or `functools.partial` object.

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
    if module in sys.modules and vars(sys.modules[module]).get(name) is given:
        return f"{module}:{name}"
    inner = given
    while isinstance(inner, functools.partial):
        inner = inner.func
    last = getattr(inner, "__name__", type(inner).__name__)
    label = f"{re.sub(r'[^A-Za-z0-9_]', '', last)}_{_hash_code(given)}"
    number, name = 1, label
    while _given.get(name, given) is not given and _uses_addresses(given):
        number += 1
        name = f"{label}_{number}"
    _given[name] = given
    return f"{__name__}:{name}"


def _hash_code(given: Any) -> str:
    text = _ADDRESS.sub("", "\n".join(_describe(given)))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _uses_addresses(given: Any) -> bool:
    """Return whether a value that the object uses is known only by its place in memory."""
    return any(_ADDRESS.search(text) for text in _describe(given))


def _describe(given: Any) -> list[str]:
    """List texts of the code of an object, and of the values that it uses."""
    if isinstance(given, functools.partial):
        values = [repr(given.args), repr(sorted(given.keywords.items()))]
        return [*values, *_describe(given.func)]
    code = getattr(given, "__code__", None)
    try:
        found = [inspect.getsource(given)]
    except (OSError, TypeError):
        found = [repr(given) if code is None else code.co_code.hex()]
    if code is not None:
        found += [repr(code.co_consts), repr(given.__defaults__), repr(given.__kwdefaults__)]
        found += [repr(cell.cell_contents) for cell in given.__closure__ or ()]
    return found
