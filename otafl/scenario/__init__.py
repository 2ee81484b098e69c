"""Scenarios: everything that a run depends on, from YAML to validated points."""

from __future__ import annotations

from otafl.scenario.errors import ScenarioError as ScenarioError
from otafl.scenario.identity import compute_scenario_hash as compute_scenario_hash
from otafl.scenario.identity import describe_scenario as describe_scenario
from otafl.scenario.identity import get_data_folder as get_data_folder
from otafl.scenario.identity import hash_custom_sources as hash_custom_sources
from otafl.scenario.identity import hash_named_files as hash_named_files
from otafl.scenario.identity import list_differences as list_differences
from otafl.scenario.identity import make_stack_key as make_stack_key
from otafl.scenario.identity import restore_tree as restore_tree
from otafl.scenario.loading import build_axes as build_axes
from otafl.scenario.loading import expand as expand
from otafl.scenario.loading import is_scenario as is_scenario
from otafl.scenario.loading import load_scenario as load_scenario
from otafl.scenario.notes import list_notes as list_notes
from otafl.scenario.schema import Point as Point
from otafl.scenario.schema import Scenario as Scenario
from otafl.scenario.writing import build_json_schema as build_json_schema
from otafl.scenario.writing import format_settings as format_settings
from otafl.scenario.writing import to_yaml as to_yaml
