"""Scenarios: everything that a run depends on, from YAML to validated points.

Modules are imported on first use, because most of them import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otafl.scenario.errors import ScenarioError
    from otafl.scenario.identity import (
        compute_scenario_hash,
        describe_scenario,
        hash_custom_sources,
        hash_named_files,
        is_same,
        list_differences,
        make_stack_key,
        restore_tree,
    )
    from otafl.scenario.loading import build_axes, expand, is_scenario, load_scenario
    from otafl.scenario.notes import list_notes
    from otafl.scenario.outline import find_idle_keys, format_settings
    from otafl.scenario.schema import Point, Scenario
    from otafl.scenario.writing import build_json_schema, to_yaml

__all__ = [
    "Point",
    "Scenario",
    "ScenarioError",
    "build_axes",
    "build_json_schema",
    "compute_scenario_hash",
    "describe_scenario",
    "expand",
    "find_idle_keys",
    "format_settings",
    "hash_custom_sources",
    "hash_named_files",
    "is_same",
    "is_scenario",
    "list_differences",
    "list_notes",
    "load_scenario",
    "make_stack_key",
    "restore_tree",
    "to_yaml",
]

_MODULES = {
    "Point": "otafl.scenario.schema",
    "Scenario": "otafl.scenario.schema",
    "ScenarioError": "otafl.scenario.errors",
    "build_axes": "otafl.scenario.loading",
    "build_json_schema": "otafl.scenario.writing",
    "compute_scenario_hash": "otafl.scenario.identity",
    "describe_scenario": "otafl.scenario.identity",
    "expand": "otafl.scenario.loading",
    "find_idle_keys": "otafl.scenario.outline",
    "format_settings": "otafl.scenario.outline",
    "hash_custom_sources": "otafl.scenario.identity",
    "hash_named_files": "otafl.scenario.identity",
    "is_same": "otafl.scenario.identity",
    "is_scenario": "otafl.scenario.loading",
    "list_differences": "otafl.scenario.identity",
    "list_notes": "otafl.scenario.notes",
    "load_scenario": "otafl.scenario.loading",
    "make_stack_key": "otafl.scenario.identity",
    "restore_tree": "otafl.scenario.identity",
    "to_yaml": "otafl.scenario.writing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
