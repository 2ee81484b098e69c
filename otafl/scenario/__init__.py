"""Scenarios: everything that a run depends on, from YAML to validated points."""

from otafl.scenario.errors import ScenarioError
from otafl.scenario.identity import (
    about,
    files_of,
    list_differences,
    restore_tree,
    same,
    scenario_hash,
    sources_of,
    stack_key,
    structure,
)
from otafl.scenario.loading import axes_of, expand, is_scenario, load_scenario
from otafl.scenario.notes import notes_on
from otafl.scenario.schema import Point, Scenario
from otafl.scenario.writing import json_schema, to_yaml

__all__ = [
    "Point",
    "Scenario",
    "ScenarioError",
    "about",
    "axes_of",
    "expand",
    "files_of",
    "is_scenario",
    "json_schema",
    "list_differences",
    "load_scenario",
    "notes_on",
    "restore_tree",
    "same",
    "scenario_hash",
    "sources_of",
    "stack_key",
    "structure",
    "to_yaml",
]
