"""Former names of keys and components in scenarios, which still work with a warning.

`KEYS` and `registry.FORMER_NAMES` are the tables. A scenario is read under the present names. Its
hash is that of the former names, so old files keep their identity.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from otafl.core.errors import RenamedSetting
from otafl.core.problems import Path
from otafl.core.registry import FORMER_NAMES, TABLES
from otafl.scenario.keys import format_path, split

KEYS: Mapping[Path, str] = {
    ("devices", "frequency"): "cpu_frequency",
    ("devices", "levels"): "capacity_levels",
    ("power", "reckoned"): "expected_transmitters",
}
"""Path of a key under its former name -> its present name."""

REMOVED_WITH = "0.3"
"""Version of otafl that refuses the former names."""

SWEEP: Path = ("sweep",)
"""Path of the section whose keys are dotted."""


@dataclass(frozen=True)
class Renaming:
    """Renaming of keys and components in scenarios.

    Parameters
    ----------
    keys : mapping
        Path of a key -> its other name.
    components : mapping
        Path of a section -> name of a component -> its other name.
    """

    keys: Mapping[Path, str]
    components: Mapping[Path, Mapping[str, str]]

    def rename_path(self, path: Path) -> Path:
        """Return a path under the other names, also that of an axis of the sweep."""
        if path[:1] == SWEEP:
            return tuple(
                self._rename_dotted(one) if isinstance(one, str) and "." in one else one
                for one in path
            )
        for depth in range(1, len(path) + 1):
            if path[:depth] in self.keys:
                return (*path[: depth - 1], self.keys[path[:depth]], *path[depth:])
        return path

    def rename_tree(self, tree: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """Return a scenario under the other names, and the list of renamed keys and values.

        A key that is given under both names stays, and is then refused as unknown.
        """
        found: dict[tuple[str, str], None] = {}
        return self._rename(tree, (), found), list(found)

    def rename_value(self, path: Path, value: Any) -> tuple[Any, list[tuple[str, str]]]:
        """Return the value of a key under the other names, and the list of what was renamed."""
        new = self.rename_path(path)
        found: dict[tuple[str, str], None] = {}
        if new != path:
            shown = (format_path(one[1:] if one[:1] == SWEEP else one) for one in (path, new))
            found[next(shown), next(shown)] = None
        below = split(str(new[1])) if new[:1] == SWEEP and len(new) > 1 else new
        return self._rename(value, below, found), list(found)

    def _rename(self, value: Any, path: Path, found: dict[tuple[str, str], None]) -> Any:
        """Return a value under the other names. found: collects what was renamed."""
        if isinstance(value, Mapping):
            renamed = {}
            for key, inner in value.items():
                new, below = self._rename_key(path, str(key))
                if new != key and new in value:
                    new = str(key)
                elif new != key:
                    found[_format_key(path, str(key)), _format_key(path, new)] = None
                renamed[new] = self._rename(inner, below, found)
            return renamed
        if isinstance(value, list | tuple):
            return [self._rename(one, path, found) for one in value]
        section = path[:-1] if path[-1:] == ("name",) else path
        other = self.components.get(section, {}).get(value) if isinstance(value, str) else None
        if other is None:
            return value
        found[f"{format_path(section)}: {value}", f"{format_path(section)}: {other}"] = None
        return other

    def _rename_key(self, above: Path, key: str) -> tuple[str, Path]:
        """Return the other name of a key and the path of its values."""
        if above != SWEEP:
            path = self.rename_path((*above, key))
            return str(path[-1]), path
        if key == "zip":
            return key, SWEEP
        dotted = self._rename_dotted(key)
        return dotted, split(dotted)

    def _rename_dotted(self, key: str) -> str:
        path = split(key)
        other = self.rename_path(path)
        return key if other == path else format_path(other)


def _format_key(above: Path, key: str) -> str:
    return key if above == SWEEP else format_path((*above, key))


TO_PRESENT = Renaming(KEYS, {TABLES[table].path: names for table, names in FORMER_NAMES.items()})
"""Renaming of former names into present ones."""

TO_FORMER = Renaming(
    {(*path[:-1], now): str(path[-1]) for path, now in KEYS.items()},
    {
        TABLES[table].path: {now: former for former, now in names.items()}
        for table, names in FORMER_NAMES.items()
    },
)
"""Renaming of present names into former ones, for hashes."""


def warn_renamed(found: Iterable[tuple[str, str]]) -> None:
    """Warn of each former name in a scenario. found: pairs of a former and a present name."""
    for former, now in found:
        text = f"'{former}' is now '{now}'; version {REMOVED_WITH} refuses the former name"
        warnings.warn(text, RenamedSetting, stacklevel=3)
