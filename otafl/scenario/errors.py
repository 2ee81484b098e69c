"""Errors of a scenario in the user's words: key, value, remedy and place."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from otafl.core import registry
from otafl.core.choices import NO_SECTION, UNKNOWN
from otafl.core.errors import UserError
from otafl.core.problems import Path, Problem
from otafl.core.suggestions import (
    find_closest,
    find_same,
    find_synonym,
    format_guess,
    format_remark,
    format_suggestion,
    format_unknown_key,
    shorten,
)
from otafl.scenario.keys import (
    CHOICES,
    find_settings_class,
    format_path,
    get_child,
    get_value,
    iterate_fields,
)

MAX_WHOLE = 10**9
"""The largest whole number, except for a seed; no count reaches it."""


MAX_UNKNOWN = 20
"""Largest number of unknown keys that are listed, each with the closest known one."""


class ScenarioError(UserError):
    """All errors of a scenario, one per line."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True)
class ProblemLocator:
    """Places of a scenario's keys.

    Parameters
    ----------
    label : str
        The file, or empty.
    places : mapping
        Path -> (file, line, column), in the scenario's file or in one that it extends.
    overrides : mapping
        Path -> the text of `--set`.
    """

    label: str = ""
    places: Mapping[Path, tuple[str, int, int]] = field(default_factory=dict)
    overrides: Mapping[Path, str] = field(default_factory=dict)

    def make_error(self, problems: Iterable[Problem]) -> ScenarioError:
        """Return all problems as one error, in the order of the file."""
        found = {}
        for problem in problems:
            override, place = self._find_override(problem.path), self._find_place(problem.path)
            order = override is not None, place[0] != self.label, *place
            found[self._format_line(problem)] = order
        return ScenarioError(sorted(found, key=found.__getitem__))

    def _format_line(self, problem: Problem) -> str:
        override = self._find_override(problem.path)
        if override is not None:
            return f"--set {override}: {problem.message}"
        file, line, column = self._find_place(problem.path)
        at = f":{line}:{column}" if line else ""
        return f"{file}{at}: {problem.message}" if file else problem.message

    def _find_override(self, path: Path) -> str | None:
        """Return the override that set the key or its section.

        For a key that is not in the file, it is one that set a key below it.
        """
        found = _find_nearest_path(path, self.overrides)
        if found is not None or path in self.places:
            return None if found is None else self.overrides[found]
        below = (text for key, text in self.overrides.items() if path and key[: len(path)] == path)
        return next(below, None)

    def _find_place(self, path: Path) -> tuple[str, int, int]:
        """Return file and place of the key, or of the section without it; 0, 0 without a file."""
        found = _find_nearest_path(path, self.places)
        return (self.label, 0, 0) if found is None else self.places[found]


def _find_nearest_path(path: Path, paths: Container[Path]) -> Path | None:
    """Return the path of the key, or else of the closest section that contains it."""
    above = (path[:depth] for depth in range(len(path), -1, -1))
    return next((one for one in above if one in paths), None)


_REQUIREMENTS = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a mapping of keys"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "string_pattern_mismatch": "of the form module:callable",
    "too_short": "a list of at least {min_length}",
}
"""Kind of an error -> the required kind of value."""


def to_problems(
    error: ValidationError, tree: Any, root: type[BaseModel], above: Path = ()
) -> list[Problem]:
    """Convert pydantic's errors in the given scenario (`tree`) into problems, one per key.

    above: path of the section whose errors they are; by default the whole scenario's.
    """
    at: dict[Path, list[Any]] = {}
    branches: set[Path] = set()
    for one in error.errors(include_url=False):
        path, branch = _find_key_path((*above, *one["loc"]), tree, str(one["type"]))
        at.setdefault(path, []).append(one)
        if branch is not None:
            branches.add(branch)
    for path, errors in list(at.items()):
        # an error inside a value names the remedy; that the value then fits no alternative, or
        # is too short without the faulty item, adds nothing
        implied = path in branches or errors[0]["type"] == "too_short"
        if implied and any(len(one) > len(path) and one[: len(path)] == path for one in at):
            del at[path]
    unknown = [path for path, errors in at.items() if errors[0]["type"] == "extra_forbidden"]
    untold = {*unknown[MAX_UNKNOWN:]}
    problems = [
        _make_problem(path, errors, tree, root) for path, errors in at.items() if path not in untold
    ]
    if untold:
        text = f"{len(untold):,} more unknown keys; is this the file of a scenario?"
        problems.append(Problem(text, unknown[-1]))
    return problems


def find_slips(tree: Any, read: Any, above: Path = ()) -> Iterator[Problem]:
    """Yield values that pydantic accepts, but that are certainly wrong.

    These are truth values for numbers (`trials: true`, read as one), whole numbers beyond any
    count, and texts that no file can contain.

    Parameters
    ----------
    tree : mapping or list
        The values as given.
    read : Settings or Any
        The same values as validated.
    above : Path
        Path of the values.
    """
    for key, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        path: Path = (*above, key)
        own = getattr(read, str(key), None) if isinstance(read, BaseModel) else get_child(read, key)
        fault = ""
        if isinstance(value, Mapping | list | tuple) and path != ("sweep",):
            yield from find_slips(value, own, path)
        elif isinstance(value, str) and "\0" in value:
            fault = "must have no NUL (\\0), which no file's name can have"
        elif isinstance(value, str) and value != value.encode(errors="ignore").decode():
            fault = "must be text that UTF-8 can write"
        elif isinstance(value, bool) and isinstance(own, int | float) and not isinstance(own, bool):
            fault = "must be a number"
        elif isinstance(value, int) and isinstance(own, int) and abs(value) > MAX_WHOLE:
            fault = "" if "seed" in format_path(path) else f"must be at most {MAX_WHOLE:,}"
        if fault:
            yield Problem(f"{format_path(path)}: got {format_value(value)}; {fault}", path)


def format_value(value: Any) -> str:
    """Return a value as the user would write it, shortened."""
    plain = {"None": "null", "True": "true", "False": "false"}
    text = plain.get(repr(value), repr(value))
    return shorten(text, 60)


def _find_key_path(loc: Sequence[str | int], tree: Any, kind: str) -> tuple[Path, Path | None]:
    """Return the keys of an error's location, and the path at which the value had alternatives.

    The kinds of the alternatives, which pydantic puts in between, are left out.
    """
    path: Path = ()
    branch: Path | None = None
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        inside = (isinstance(tree, Mapping) and part in tree) or (
            isinstance(tree, list | tuple) and isinstance(part, int)
        )
        if inside or (kind == "missing" and last):
            path, tree = (*path, part), get_child(tree, part)
        else:
            branch = path
    return path, branch


def _make_problem(path: Path, errors: list[Any], tree: Any, root: type[BaseModel]) -> Problem:
    kind = errors[0]["type"]
    choice = CHOICES.get(path)
    value = get_value(tree, path)
    if kind == "extra_forbidden":
        model = find_settings_class(root, path[:-1], tree)
        keys = ", ".join(model.model_fields if model else ()) or "none"
        hint = find_hint(path, tree, root)
        return Problem(f"{format_path(path)}: unknown key{hint} (known keys: {keys})", path)
    if errors[0]["loc"][-1:] == ("[key]",):
        said = format_unknown_key(str(path[-1]), _list_literals(errors[0]))
        return Problem(f"{format_path(path)}: {said}", path)
    if kind == "missing":
        like = ", like 'name: my_run'" if path == ("name",) else ""
        return Problem(f"{format_path(path)}: must be given{like}", path)
    if choice and kind in (UNKNOWN, NO_SECTION):
        if isinstance(value, Mapping):
            path, value = (*path, "name"), value["name"]
        if isinstance(value, str):
            return Problem(
                f"{format_path(path)}: {registry.format_unknown_name(choice.table, value)}", path
            )
        wanted = "a name" if path[-1] == "name" else "a name or a mapping of keys"
        names = ", ".join(registry.list_names(choice.table))
        return Problem(
            f"{format_path(path)}: got {format_value(value)}; must be {wanted}: {names}", path
        )
    if kind == "value_error":
        prefix = f"{format_path(path)}: " if path else ""
        return Problem(f"{prefix}{errors[0]['ctx']['error']}", path)
    precise = [one for one in errors if not one["type"].endswith("_type")]
    texts = dict.fromkeys(_format_requirement(one) for one in precise or errors)
    text = f"{format_path(path)}: got {format_value(value)}; must be {' or '.join(texts)}"
    if kind == "literal_error" and isinstance(value, str):
        text += format_suggestion(value, _list_literals(errors[0]))
    return Problem(text, path)


def _format_requirement(error: Any) -> str:
    """Describe the required value, after "must be"."""
    if error["type"] in _REQUIREMENTS:
        return _REQUIREMENTS[error["type"]].format(**error.get("ctx", {}))
    text = str(error["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    text = text.split(", unable to")[0].split(", got a number")[0]
    text = {"integer": "a whole number", "number": "a number", "string": "text"}.get(text, text)
    return {"boolean": "true or false", "finite number": "a finite number"}.get(text, text)


def _list_literals(error: Any) -> list[str]:
    """Return the texts that a literal_error would accept."""
    return re.findall(r"'([^']*)'", error["ctx"]["expected"])


def find_hint(path: Path, tree: Any, root: type[BaseModel]) -> str:
    """Return the suggested key for an unknown one, after a semicolon, or an empty text.

    A key of the same name or meaning comes before one with a similar spelling. The search is first
    in the section, then in the section's other choices, then anywhere. There it is the key for
    which other programs use the word, or of this name within the fewest sections.

    Parameters
    ----------
    path : Path
        Path of the unknown key.
    tree : Any
        The scenario.
    root : type of BaseModel
        Class of its settings.
    """
    word, section = str(path[-1]), path[:-1]
    model, choice = find_settings_class(root, section, tree), CHOICES.get(section)
    known = list(model.model_fields) if model else []
    others = {} if choice is None else choice.load_all_settings_classes()
    beside = list(dict.fromkeys(key for kind in others.values() for key in kind.model_fields))
    for look in (find_same, find_closest):
        guess = look(word, known)
        if guess is None and choice and (guess := look(word, beside)):
            owners = [name for name, kind in others.items() if guess in kind.model_fields]
            found = get_value(tree, section)
            chosen = choice.normalise({} if found is None else found)["name"]
            subject = "it" if guess == word else f"did you mean '{guess}'? it"
            if len(owners) > 3:
                owners[2:] = [f"{len(owners) - 2} more"]
            return f"; {subject} is a key of {' and '.join(owners)}, not of {chosen}"
        if guess is None and look is find_same and word != "name":
            key, every = find_synonym(word), dict.fromkeys(one for one, _ in iterate_fields(root))
            alike = [one for one in every if one == key or one.endswith(f".{word}")]
            guess = min(alike, key=lambda one: one.count("."), default=None)
        if guess:
            return f"{format_guess(guess)}{format_remark(word)}"
    return ""
