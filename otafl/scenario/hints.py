"""Suggestions of the key that an unknown key may stand for."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from otafl.core.problems import Path
from otafl.core.suggestions import (
    find_closest,
    find_same,
    find_synonym,
    format_guess,
    format_remark,
)
from otafl.scenario.keys import CHOICES, find_settings_class, format_path, get_value, iterate_fields


def find_hint(path: Path, tree: Any, root: type[BaseModel], whole: bool = False) -> str:
    """Return the suggested key for an unknown one, after a semicolon, or an empty text.

    A key of the same name or meaning comes before one with a similar spelling. The search is first
    in the section, then in the section's other choices, then anywhere.

    Parameters
    ----------
    path : Path
        Path of the unknown key.
    tree : Any
        The scenario.
    root : type of BaseModel
        Class of its settings.
    whole : bool, default False
        Whether keys of the section are written with their whole path.
    """
    word, section = str(path[-1]), path[:-1]
    model = find_settings_class(root, section, tree)
    known = list(model.model_fields) if model else []
    others = _list_choices(section)
    beside = list(dict.fromkeys(key for keys in others.values() for key in keys))
    for look in (find_same, find_closest):
        own = look(word, known)
        if own is None and (guess := look(word, beside)):
            return _format_owners(word, guess, section, others, tree)
        guess = own if look is find_closest else own or _find_in_other_sections(word, root)
        if guess:
            named = format_path((*section, guess)) if whole and guess == own else guess
            return f"{format_guess(named)}{format_remark(word)}"
    return ""


def _list_choices(section: Path) -> dict[str, list[str]]:
    """Return the keys of each component that a section may choose; empty for other sections."""
    choice = CHOICES.get(section)
    every = {} if choice is None else choice.load_all_settings_classes()
    return {name: list(kind.model_fields) for name, kind in every.items()}


def _format_owners(
    word: str, guess: str, section: Path, keys: dict[str, list[str]], tree: Any
) -> str:
    """Write which components of a section have the suggested key."""
    owners = [name for name, own in keys.items() if guess in own]
    found = get_value(tree, section)
    chosen = CHOICES[section].normalise({} if found is None else found)["name"]
    subject = "it" if guess == word else f"did you mean '{guess}'? it"
    return f"; {subject} is a key of {' and '.join(owners)}, not of {chosen}"


def _find_in_other_sections(word: str, root: type[BaseModel]) -> str | None:
    """Return the dotted key for which other programs use this word, or that has this name.

    Of several keys of this name it is the one within the fewest sections.
    """
    if word == "name":
        return None
    key = find_synonym(word)
    every = dict.fromkeys(one for one, _ in iterate_fields(root))
    found = [one for one in every if one == key or one.endswith(f".{word}")]
    return min(found, key=lambda one: one.count("."), default=None)
