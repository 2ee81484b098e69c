"""Write a small scenario for every component, with what it cannot do without."""

from __future__ import annotations

from typing import Any

import yaml

from otafl.core import registry
from otafl.scenario.keys import CHOICES, Path, put

ORDER = ("data", "model", "algorithm", "channel", "csi", "receiver", "power", "codec", "transport")


def example(table: str, name: str) -> dict[str, Any]:
    """Return the keys of a small scenario that uses a component; what is left out has its
    default."""
    tree: dict[str, Any] = {"name": f"{table}_{name}"}
    chosen = {f"{registry.TABLES[table].section}.name": name}
    for key, value in (chosen | dict(registry.settings(table, name).example)).items():
        tree = put(tree, tuple(key.split(".")), value)
    for path in sorted(CHOICES, key=len):
        tree = _name_first(tree, path)
    rank = {section: place for place, section in enumerate(("name", *ORDER))}
    return dict(sorted(tree.items(), key=lambda item: rank.get(item[0], len(rank))))


def _name_first(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    node: Any = tree
    for part in path[:-1]:
        node = node.get(part, {})
    here = node.get(path[-1])
    if isinstance(here, dict) and "name" in here:
        return put(tree, path, {"name": here["name"], **here})
    return tree


def example_yaml(table: str, name: str) -> str:
    """Return the scenario of `example` as YAML."""
    return str(yaml.safe_dump(example(table, name), sort_keys=False))


def everything() -> list[tuple[str, str]]:
    """List every (table, name)."""
    return [(table, name) for table in registry.TABLES for name in registry.names(table)]
