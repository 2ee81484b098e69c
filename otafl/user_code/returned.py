"""Results of the methods of user-defined classes: their declaration and checks.

A table declares a check for each method, made of the functions here: `check(call, value)` returns
the value, or raises UserError. It looks only at types, shapes and, on the host, numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from otafl.core.errors import UserError
from otafl.user_code import error_origin


@dataclass(frozen=True)
class Call:
    """A call of a user-defined method.

    Parameters
    ----------
    said : str
        Start of the message: the method and its part.
    place : str
        End of the message: the place of the method.
    kind : type
        The class.
    given : mapping
        The arguments by name before the call; named tensors by their shapes.
    """

    said: str
    place: str
    kind: type[Any]
    given: Mapping[str, Any]

    def refuse(self, fault: str, wanted: str) -> NoReturn:
        """Raise UserError because the result is not the expected one."""
        raise UserError(f"{self.said} {fault}; expected {wanted}{self.place}")

    def require(self, fine: bool, fault: str, wanted: str) -> None:
        """Raise UserError unless the result is valid."""
        if not fine:
            self.refuse(fault, wanted)


Check = Callable[[Call, Any], Any]
Given = Mapping[str, Any]


def wrap_method(
    kind: type[Any], contract: type[Any], method: str, check: Check, said: str
) -> Callable[..., Any]:
    """Return the method of a class with a check of its result.

    It gets copies of arrays, and the check gets the arguments under the contract's names.
    """
    written = getattr(kind, method)
    names = list(inspect.signature(getattr(contract, method)).parameters)[1:]
    place = error_origin.locate(written)

    def call(self: Any, *args: Any, **keys: Any) -> Any:
        every = dict(zip(names, args, strict=False)) | keys
        given = {
            k: describe_shapes(one) if isinstance(one, dict) else one for k, one in every.items()
        }
        own = (one.copy() if isinstance(one, np.ndarray) else one for one in args)
        return check(Call(said, place, kind, given), written(self, *own, **keys))

    return call


def check_parts(wanted: str, *checks: Check) -> Check:
    """Require a tuple with one part for each check, and apply the checks."""

    def check(call: Call, value: Any) -> Any:
        fine = isinstance(value, tuple) and len(value) == len(checks)
        call.require(fine, describe_kind(value), wanted)
        return tuple(one(call, part) for one, part in zip(checks, value, strict=True))

    return check


def check_blocks(argument: str, whose: str, note: str = "as before") -> Check:
    """Require named tensors of the names and shapes of an argument."""

    def check(call: Call, value: Any) -> Any:
        before, now = call.given[argument], describe_shapes(value)
        if isinstance(now, str):
            call.refuse(now, f"{whose} blocks {sorted(before)}, {note}")
        same = now.keys() == before.keys()
        call.require(same, f"{whose} blocks {sorted(now)}", f"{sorted(before)}, {note}")
        for name, shape in now.items():
            got = f"{whose} block '{name}' of shape {shape}"
            call.require(shape == before[name], got, f"{before[name]}, {note}")
        return value

    return check


def check_tensors(call: Call, value: Any) -> Any:
    """Require named tensors of any names and shapes."""
    found = describe_shapes(value)
    if isinstance(found, str):
        call.refuse(found, "a dict of tensors")
    return value


def check_shape(
    shape: Callable[[Given], Sequence[int]], what: str = "", note: str = "", one: bool = False
) -> Check:
    """Require an array of a shape; with `one`, a number that stands for all is expanded to it."""

    def check(call: Call, value: Any) -> Any:
        wanted = list(shape(call.given))
        value = np.asarray(value, float) if one else value
        got = list(value.shape) if hasattr(value, "shape") else type(value).__name__
        fine = got == wanted or (one and got == [])
        call.require(fine, f"{what}{got}", f"{'one number, or ' * one}{wanted}{note}")
        return np.broadcast_to(value, wanted) if one else value

    return check


def check_rows(call: Call, what: str, named: Mapping[str, Any], counts: Sequence[int]) -> None:
    """Require that every named tensor has as many rows as one of the counts."""
    for name, block in named.items():
        got = f"{what} '{name}' of shape {list(block.shape)}"
        call.require(len(block) in counts, got, f"[{counts[0]}, ...], one row per device")


def describe_shapes(value: Any) -> dict[str, list[int]] | str:
    """Return the shapes of named tensors; a description for any other value."""
    if isinstance(value, dict) and all(hasattr(one, "shape") for one in value.values()):
        return {name: list(block.shape) for name, block in value.items()}
    return describe_kind(value)


def describe_kind(value: Any) -> str:
    """Return the type of a value, with an article."""
    return f"a {type(value).__name__}"
