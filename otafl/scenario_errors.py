"""What is wrong with a scenario, in the user's words: key, value, remedy and place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from otafl import registry
from otafl.errors import UserError
from otafl.keys import CHOICES, Path, child, dotted, fields, model_at, named


class ScenarioError(UserError):
    """Everything that is wrong with a scenario, a line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True)
class Problem:
    """message: what is wrong, its key included. path: where. others: more keys it depends on."""

    message: str
    path: Path = ()
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Where:
    """Where a scenario's keys were given. label: the file, or empty. places: path -> (line,
    column). overrides: path -> the text of `--set`."""

    label: str = ""
    places: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    overrides: Mapping[Path, str] = field(default_factory=dict)

    def error(self, problems: Iterable[Problem]) -> ScenarioError:
        """All problems in the order of the file."""
        found = {self._line(problem): self._order(problem.path) for problem in problems}
        return ScenarioError(sorted(found, key=found.__getitem__))

    def _line(self, problem: Problem) -> str:
        path = problem.path
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.overrides:
                return f"--set {self.overrides[path[:depth]]}: {problem.message}"
        line, column = self._place(path)
        at = f":{line}:{column}" if line else ""
        return f"{self.label}{at}: {problem.message}" if self.label else problem.message

    def _place(self, path: Path) -> tuple[int, int]:
        """Of the key, or of the section that lacks it; (0, 0) if neither is in the file."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.places:
                return self.places[path[:depth]]
        return (0, 0)

    def _order(self, path: Path) -> tuple[bool, tuple[int, int]]:
        overridden = any(path[:depth] in self.overrides for depth in range(1, len(path) + 1))
        return overridden, self._place(path)


def problems_of(error: ValidationError, tree: Any, root: type[BaseModel]) -> list[Problem]:
    """Pydantic's errors over what the scenario gave (`tree`), one for each key."""
    at: dict[Path, list[Any]] = {}
    branches: dict[Path, list[Path]] = {}
    for one in error.errors(include_url=False):
        path, branch = _key_path(one["loc"], tree, str(one["type"]))
        at.setdefault(path, []).append(one)
        if branch is not None:
            branches.setdefault(branch, []).append(path)
    for branch, paths in branches.items():
        if any(len(path) > len(branch) for path in paths):
            # the value was of this alternative's kind, so the other alternatives say nothing
            at.pop(branch, None)
    return [_problem(path, errors, tree, root) for path, errors in at.items()]


def unknown_key(path: Path, tree: Any, root: type[BaseModel]) -> str:
    """The sentence for a key that does not exist, with the closest that does."""
    word, section = str(path[-1]), path[:-1]
    model = model_at(root, section, tree)
    known = list(model.model_fields) if model else []
    guess = registry.closest(word, known)
    if guess:
        hint = f"did you mean '{guess}'?"
    else:
        hint = _elsewhere(word, section, tree, root)
    listed = f"(known keys: {', '.join(known)})"
    return (
        f"{dotted(path)}: unknown key; {hint} {listed}"
        if hint
        else (f"{dotted(path)}: unknown key {listed}")
    )


def _elsewhere(word: str, section: Path, tree: Any, root: type[BaseModel]) -> str:
    """Where else there is a key of that name."""
    table = CHOICES.get(section)
    if table:
        owners = [
            name
            for name in registry.names(table)
            if word in registry.config_class(table, name).model_fields
        ]
        for part in section:
            tree = child(tree, part)
        chosen = named(table, {} if tree is None else tree)["name"]
        if owners:
            return f"it is a key of {' and '.join(owners)}, not of {chosen}"
    every = dict.fromkeys(key for key, _ in fields(root))
    found = [key for key in every if key.endswith(f".{word}")]
    return f"did you mean '{found[0]}'?" if found and word != "name" else ""


def shown(value: Any) -> str:
    """A value as the user would write it, shortened."""
    text = (
        {True: "true", False: "false", None: "null"}.get(value)
        if (value is None or isinstance(value, bool))
        else repr(value)
    )
    text = str(text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key_path(loc: Sequence[str | int], tree: Any, kind: str) -> tuple[Path, Path | None]:
    """The keys of an error's location, without the names of a union's alternatives that pydantic
    puts in between; and the path at which the value had alternatives of plain kinds, if so."""
    path: Path = ()
    branch: Path | None = None
    for index, part in enumerate(loc):
        table = CHOICES.get(path)
        if table and part == _tag(table, tree) and loc[index - 1] == path[-1]:
            continue
        last = index == len(loc) - 1
        inside = (isinstance(tree, Mapping) and part in tree) or (
            isinstance(tree, list | tuple) and isinstance(part, int)
        )
        if inside or (kind == "missing" and last):
            path, tree = (*path, part), child(tree, part)
        elif not table:
            branch = path
    return path, branch


def _tag(table: str, section: Any) -> Any:
    section = named(table, section)
    name = section.get("name") if isinstance(section, Mapping) else None
    if table in registry.CUSTOM and isinstance(name, str) and ":" in name:
        return "module:callable"
    return name


def _problem(path: Path, errors: list[Any], tree: Any, root: type[BaseModel]) -> Problem:
    kind = errors[0]["type"]
    table = CHOICES.get(path)
    value = tree
    for part in path:
        value = child(value, part)
    if kind == "extra_forbidden":
        return Problem(unknown_key(path, tree, root), path)
    if kind == "missing":
        return Problem(f"{dotted(path)}: must be given", path)
    if kind in ("union_tag_invalid", "union_tag_not_found") and table:
        if isinstance(value, Mapping):
            path, value = (*path, "name"), value["name"]
        if isinstance(value, str):
            return Problem(f"{dotted(path)}: {registry.unknown_name(table, value)}", path)
        wanted = "a name" if path[-1] == "name" else "a name or a mapping of keys"
        choices = ", ".join(registry.names(table))
        return Problem(f"{dotted(path)}: got {shown(value)}; must be {wanted}: {choices}", path)
    if kind == "value_error":
        prefix = f"{dotted(path)}: " if path else ""
        return Problem(f"{prefix}{errors[0]['ctx']['error']}", path)
    precise = [one for one in errors if not one["type"].endswith("_type")]
    texts = dict.fromkeys(_requirement(one) for one in precise or errors)
    text = f"{dotted(path)}: got {shown(value)}; must be {' or '.join(texts)}"
    return Problem(text + _closest_literal(errors, value), path)


def _requirement(error: Any) -> str:
    """What a value must be, after "must be"."""
    kind = error["type"]
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "a mapping of keys"
    if kind in ("tuple_type", "list_type"):
        return "a list"
    if kind == "string_pattern_mismatch":
        return "of the form module:callable"
    if kind in ("too_short", "too_long"):
        return (
            "a list of "
            + {"too_short": "at least ", "too_long": "at most "}[kind]
            + str(error["ctx"].get("min_length", error["ctx"].get("max_length")))
        )
    text = str(error["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    text = text.split(", unable to parse")[0].split(", got a number")[0]
    text = {"integer": "a whole number", "number": "a number", "string": "text"}.get(text, text)
    return {"boolean": "true or false", "finite number": "a finite number"}.get(text, text)


def _closest_literal(errors: list[Any], value: Any) -> str:
    if errors[0]["type"] != "literal_error" or not isinstance(value, str):
        return ""
    choices = [
        part.strip("'") for part in errors[0]["ctx"]["expected"].replace(" or ", ", ").split(", ")
    ]
    guess = registry.closest(value, choices)
    return f"; did you mean '{guess}'?" if guess else ""
