"""The strings below the fields of a class that is being defined.

Pydantic finds them too (`use_attribute_docstrings`), but cuts the class out of its file with a
tokeniser in Python, which took a third of the time to read a scenario.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from types import FrameType


def read_attribute_docstrings(kind: type) -> dict[str, str]:
    """Return field -> the string below it, for the fields that a class itself annotates.

    The class is read where its definition runs now, or else where it is found by its name; without
    a source it has no strings.
    """
    for lines, number in _iterate_places(kind):
        found = _parse_class(lines[number - 1 :], kind.__name__)
        if found is not None:
            return _collect(found)
    try:
        lines, _ = inspect.getsourcelines(kind)
    except (OSError, TypeError):
        return {}
    found = _parse_class(lines, kind.__name__)
    return {} if found is None else _collect(found)


def _iterate_places(kind: type) -> Iterator[tuple[Sequence[str], int]]:
    """Yield the lines of files whose code runs in the class's module, each with the line number."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == kind.__module__:
            lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
            if frame.f_lineno <= len(lines):
                yield lines, frame.f_lineno
        frame = frame.f_back


def _parse_class(lines: Sequence[str], name: str) -> ast.ClassDef | None:
    """Return the class that begins in the first line, or None if none of this name does."""
    if lines and lines[0].lstrip().startswith("@"):
        begin = (place for place, line in enumerate(lines) if line.lstrip().startswith("class "))
        lines = lines[next(begin, 0) :]
    if not lines or not re.match(rf"\s*class\s+{name}\b", lines[0]):
        return None
    indent = _count_indent(lines[0])
    ends = (
        place
        for place, line in enumerate(lines)
        if place and line.strip() and line.strip()[0] != "#" and _count_indent(line) <= indent
    )
    for block in (lines[: next(ends, None)], inspect.getblock(lines)):
        try:  # what ends within a text or parentheses does not parse
            tree = ast.parse(("if True:\n" if indent else "") + "".join(block))
        except SyntaxError:
            continue
        outer = tree.body[0]
        made = outer.body[0] if isinstance(outer, ast.If) else outer
        return made if isinstance(made, ast.ClassDef) else None
    return None


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _collect(made: ast.ClassDef) -> dict[str, str]:
    """Return field -> the string that follows it."""
    found = {}
    for field, below in zip(made.body, made.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = inspect.cleandoc(below.value.value)
    return found
