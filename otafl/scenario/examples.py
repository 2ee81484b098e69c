"""A small scenario for every component, with the keys that it requires."""

from __future__ import annotations

from typing import Any

import yaml

from otafl.core import registry
from otafl.scenario.keys import set_value
from otafl.scenario.writing import name_first

ORDER = ("data", "model", "algorithm", "channel", "csi", "receiver", "power", "codec", "transport")


def build_example(table: str, name: str) -> dict[str, Any]:
    """Return the keys of a small scenario that uses a component; other keys have their defaults."""
    tree: dict[str, Any] = {"name": f"{table}_{name}"}
    chosen = {f"{registry.TABLES[table].section}.name": name}
    for key, value in (chosen | dict(registry.load_settings_class(table, name).example)).items():
        tree = set_value(tree, tuple(key.split(".")), value)
    tree = name_first(tree)
    rank = {section: place for place, section in enumerate(("name", *ORDER))}
    return dict(sorted(tree.items(), key=lambda item: rank.get(item[0], len(rank))))


def format_example(table: str, name: str) -> str:
    """Return the scenario of `build_example` as YAML."""
    return str(yaml.safe_dump(build_example(table, name), sort_keys=False))
