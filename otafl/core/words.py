"""Suggest the word that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from otafl.core.errors import UserError


def counted(count: int, word: str) -> str:
    """Write how many there are of something: "1 point", "2,000 points"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like this one, if any is like it."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or nothing where no known word is like this one."""
    return meant(closest(word, known))


def meant(guess: str | None) -> str:
    """Return "; did you mean 'x'?", or nothing without a guess."""
    return f"; did you mean '{guess}'?" if guess else ""


def unknown(got: str, what: str, name: str, known: Iterable[Any]) -> UserError:
    """Return the error of a name that is not known, with those that are."""
    names = [str(one) for one in known]
    hint = did_you_mean(name, names)
    return UserError(f"{got}: not {what}{hint} (known: {', '.join(names)})")
