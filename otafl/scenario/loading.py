"""Reading of a scenario, its checks, and the expansion of its sweep into points."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from otafl.core.errors import UserError
from otafl.core.problems import Path, Problem
from otafl.scenario import axes
from otafl.scenario.axes import Coordinate
from otafl.scenario.checks import check
from otafl.scenario.errors import ProblemLocator, find_slips, to_problems
from otafl.scenario.keys import CHOICES, set_value, split
from otafl.scenario.reading import EXTENDS, add_base, locate_files, read_file
from otafl.scenario.schema import Point, Scenario
from otafl.scenario.yaml_source import parse
from otafl.user_code.sources import name_object

Further = Callable[[Scenario], list[Problem]]


def load_scenario(
    source: str | FilePath | Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> Scenario:
    """Read a scenario from a YAML file or a mapping.

    Every point of its sweep is checked.

    Parameters
    ----------
    source : str, Path or mapping
        Path of the YAML file, or the mapping of keys. In a mapping, functions and classes may stand
        in place of their names `module:name`. Relative paths of input files count from the folder
        of the YAML file; those of a mapping and of overrides from the working folder.
    overrides : sequence of str, optional
        Texts `a.b=c`, with c in YAML, which are applied before the checks.

    Returns
    -------
    Scenario
        The validated scenario.

    Raises
    ------
    ScenarioError
        If the scenario is not valid. The message lists every error.
    """
    return load_points(source, overrides)[0]


def load_points(
    source: str | FilePath | Mapping[str, Any],
    overrides: Sequence[str] = (),
    further: Further | None = None,
) -> tuple[Scenario, list[Point]]:
    """Read a scenario as `load_scenario`, and return the points of its sweep too.

    further: returns further errors of a point whose sections are valid.
    """
    if isinstance(source, Mapping):
        folder = FilePath()
        tree, where = locate_files(_to_plain(source, ()), folder), ProblemLocator()
    else:
        tree, where = read_file(FilePath(source))
        folder = FilePath(source).parent
    tree, where = add_base(tree, where, folder)
    tree, where = _apply_overrides(tree, where, overrides)
    try:
        scenario = Scenario.model_validate(tree)
        problems = list(find_slips(tree, scenario))
    except ValidationError as error:
        problems = to_problems(error, tree, Scenario)
    sweep, faults = axes.read(tree.get("sweep"), Scenario, tree)
    at_sweep = {fault.path for fault in faults}
    problems = [one for one in problems if one.path not in at_sweep]
    problems += [*faults, *_find_swept_overrides(sweep, where)]
    if problems:
        raise where.make_error(problems)
    return scenario, _build_points(scenario, sweep, where, further)


def expand(scenario: Scenario) -> list[Point]:
    """Return every point of the sweep, the last axis fastest; one point without a sweep.

    Raises ScenarioError for invalid points.
    """
    return _build_points(scenario, read_sweep(scenario), ProblemLocator())


def is_scenario(file: FilePath) -> bool:
    """Return whether a file is a scenario, by its name."""
    return file.suffix in (".yaml", ".yml")


def read_sweep(scenario: Scenario) -> axes.Sweep:
    """Return the axes of a sweep. Raises ScenarioError if they are not valid."""
    tree = scenario.model_dump(exclude_unset=True)
    sweep, problems = axes.read(scenario.sweep, Scenario, tree)
    if problems:
        raise ProblemLocator().make_error(problems)
    return sweep


def build_axes(scenario: Scenario) -> dict[str, dict[str, Coordinate]]:
    """Return the dims of the sweep in the scenario's order, each with its coordinates by name."""
    return axes.build_axes(read_sweep(scenario))


def _to_plain(value: Any, path: Path) -> Any:
    """Return mappings, sequences, paths and NumPy's numbers in the form that YAML would give.

    Functions and classes, which name user-defined parts, are returned as `module:name`.
    """
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item, (*path, str(place))) for place, item in enumerate(value)]
    if isinstance(value, FilePath):
        return str(value)
    if callable(value):
        try:
            return name_object(value)
        except UserError as error:
            said = f"{'.'.join(map(str, path))}: {error}"
            raise ProblemLocator().make_error([Problem(said, path)]) from error
    return _to_plain(value.tolist(), path) if hasattr(value, "tolist") else value


def _apply_overrides(
    tree: dict[str, Any], locator: ProblemLocator, overrides: Sequence[str]
) -> tuple[dict[str, Any], ProblemLocator]:
    if not isinstance(overrides, list | tuple) or not all(isinstance(t, str) for t in overrides):
        raise UserError(f"overrides: expected a list like ['seed=3'], got {overrides!r}")
    texts: dict[Path, str] = {}
    problems = []
    for text in overrides:
        key, equals, value = text.partition("=")
        path = split(key.strip())
        texts[path] = text
        if path[:1] == (EXTENDS,):
            problems.append(
                Problem("extends: only a file can name its base; set single keys", path)
            )
            continue
        if not equals or not all(path):
            problems.append(Problem("must be of the form key=value, like channel.snr_db=10", path))
            continue
        try:
            source = parse(value)
            if source.empty:
                raise UserError("has no value, as with an unset variable; give one (null for none)")
            new = source.data
            if isinstance(new, str) and path in CHOICES and CHOICES[path].find_settings_class(new):
                path = (*path, "name")  # keeps the other keys of the section
                texts[path] = text
            tree = set_value(tree, path, locate_files(new, FilePath(), path))
        except UserError as error:  # of the YAML
            problems.append(Problem(str(error), path))
        except KeyError as error:
            holder = ".".join(error.args[0])
            problems.append(Problem(f"'{holder}' has no keys of its own", path))
    locator = replace(locator, overrides=texts)
    if problems:
        raise locator.make_error(problems)
    return tree, locator


def _find_swept_overrides(sweep: axes.Sweep, locator: ProblemLocator) -> Iterator[Problem]:
    """Yield the overrides that an axis would override in turn."""
    for track in itertools.chain(*sweep):
        for path in (track.path, (*track.path, "name")):
            if path in locator.overrides:
                text = f"this key is swept; say sweep.{track.key}=[...], or sweep={{}} for no sweep"
                yield Problem(text, path)


def _build_points(
    scenario: Scenario,
    sweep: axes.Sweep,
    locator: ProblemLocator,
    further: Further | None = None,
) -> list[Point]:
    """Return the points of a sweep. Raises ScenarioError with all their errors."""
    base = scenario.model_dump(exclude_unset=True, exclude={"sweep"})
    # sections that no axis changes need no second validation, which is what takes the time
    swept = {track.path[0] for track in itertools.chain(*sweep)}
    shared = {name: value for name, value in scenario if name in base and name not in swept}
    labels = {one.name: one.coordinate.values for one in itertools.chain(*sweep)}
    points: list[Point] = []
    found: Found = {}
    for index, settings in enumerate(axes.iterate_points(sweep)):
        tree = axes.apply_point(base, settings)
        try:
            one = Scenario.model_validate({**tree, **shared})
        except ValidationError as error:
            _collect(found, to_problems(error, tree, Scenario), settings)
            continue
        changed = {name: value for name, value in tree.items() if name in swept}
        problems = [*check(one), *find_slips(changed, one)]
        if not problems and further is not None:
            problems = further(one)
        _collect(found, problems, settings)
        coords = {track.name: labels[track.name][place] for track, place in settings}
        points.append(Point(index, coords, one))
    problems = []
    for (message, _), (place, said) in found.items():
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        prefix = f"sweep: {next(iter(said))}{more}: " if said else ""
        problems.append(Problem(f"{prefix}{message}", place))
    if problems:
        raise locator.make_error(problems)
    return points


Found = dict[tuple[str, Path], tuple[Path, dict[str, None]]]
"""Message and axis of a point's error -> its place, and the values of the axes that cause it."""


def _collect(
    found: Found, problems: Iterable[Problem], point: list[tuple[axes.Track, int]]
) -> None:
    """Add the errors of a point to those found."""
    for one in problems:
        paths = [path for path in (one.path, *one.other_paths) if path]
        touched = [
            (track, place)
            for track, place in point
            if any(track.path[: len(path)] == path[: len(track.path)] for path in paths)
        ]
        axis, place = one.path, one.path
        if touched:
            track, position = touched[0]
            axis, place = track.place, track.get_place(position)
        _, said = found.setdefault((one.message, axis), (place, {}))
        if touched:
            said[axes.format_point(touched)] = None
