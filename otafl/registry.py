"""What a scenario can name: explicit tables of names, settings classes and implementations.

Nothing is imported before it is asked for: listing names needs neither torch nor pydantic.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

from otafl import custom
from otafl.errors import UserError
from otafl.registry_entry import Entry
from otafl.registry_tables import CUSTOM, NOUNS, TABLES


def names(table: str) -> tuple[str, ...]:
    """The names of a table."""
    return tuple(TABLES[table])


def config_class(table: str, name: str) -> type[Any]:
    """The settings class of an entry, or of the user's own `module:callable`. UserError if the
    table does not have the name."""
    if table in CUSTOM and ":" in name:
        return _load(CUSTOM[table])
    return _load(_entry(table, name).config)


def implementation(table: str, name: str) -> Any:
    """The object that implements an entry, or the user's own `module:callable`. UserError if it
    cannot be had."""
    if table in CUSTOM and ":" in name:
        return custom.load(name, f"{table}.name")
    return _load(_entry(table, name).implementation)


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like the word, if any is like it."""
    found = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_name(table: str, name: str) -> str:
    """The sentence for a name that the table does not have."""
    guess = closest(name, names(table))
    hint = f"did you mean '{guess}'? " if guess else ""
    own = ", or module:callable of your own" if table in CUSTOM else ""
    noun = NOUNS.get(table, table)
    return f"unknown {noun} '{name}'; {hint}known: {', '.join(names(table))}{own}"


def _entry(table: str, name: str) -> Entry:
    if name not in TABLES[table]:
        raise UserError(f"{table}: {unknown_name(table, name)}")
    return TABLES[table][name]


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
