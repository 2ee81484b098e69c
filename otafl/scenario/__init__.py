"""Scenarios: everything that a run depends on, from YAML to validated points."""

from __future__ import annotations

from otafl.scenario.errors import ScenarioError
from otafl.scenario.identity import (
    compute_scenario_hash,
    describe_scenario,
    get_data_folder,
    hash_custom_sources,
    hash_named_files,
    list_differences,
    make_stack_key,
    restore_tree,
)
from otafl.scenario.loading import build_axes, expand, is_scenario, load_scenario
from otafl.scenario.notes import list_notes
from otafl.scenario.schema import Point, Scenario
from otafl.scenario.writing import build_json_schema, format_settings, to_yaml

__all__ = [
    "Point",
    "Scenario",
    "ScenarioError",
    "build_axes",
    "build_json_schema",
    "compute_scenario_hash",
    "describe_scenario",
    "expand",
    "format_settings",
    "get_data_folder",
    "hash_custom_sources",
    "hash_named_files",
    "is_scenario",
    "list_differences",
    "list_notes",
    "load_scenario",
    "make_stack_key",
    "restore_tree",
    "to_yaml",
]
