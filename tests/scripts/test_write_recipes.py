"""The recipes: questions, each with an answer, a picture, a scenario and its table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml
from matplotlib.image import imread

from otafl.core.errors import UserError
from otafl.results.variables import VARIABLES
from otafl.scenario import expand, load_scenario

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "scripts" / "write_recipes.py"))
PAGE = (ROOT / "docs" / "recipes.md").read_text()
RECIPES = TOOL["read_recipes"](PAGE)
CELL = re.compile(r"(\S+) ± (\S+)")
"""Mean and standard deviation."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_table_has_a_row_for_each_point(name: str) -> None:
    recipe = RECIPES[name]
    scenario = yaml.safe_load(recipe.scenario)
    assert scenario["name"] == name
    assert set(recipe.variables) <= set(VARIABLES)
    table = next(text for _, other, _, text, _ in TOOL["TABLE"].findall(PAGE) if other == name)
    rows = [line for line in table.splitlines() if line.startswith("|")]
    try:
        points = expand(load_scenario(scenario))
    except UserError as error:
        pytest.fail(str(error))
    assert len(rows) == 2 + len(points)
    assert all(row.count("|") == rows[0].count("|") for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noise_limit", "phases"])  # examples: quick ones
def test_table_and_picture_are_what_the_scenario_gives(name: str, tmp_path: Path) -> None:
    """Up to rounding, which on another machine changes means by less than the trials differ."""
    table = next(text for _, other, _, text, _ in TOOL["TABLE"].findall(PAGE) if other == name)
    found = TOOL["run_recipe"](name, RECIPES[name], tmp_path)
    assert CELL.sub("", found) == CELL.sub("", table)
    for (mean, _), (written, std) in zip(CELL.findall(found), CELL.findall(table), strict=True):
        assert abs(float(mean) - float(written)) <= float(std)
    drawn, committed = (imread(folder / f"{name}.png") for folder in (tmp_path, TOOL["PICTURES"]))
    assert drawn.shape == committed.shape
    assert abs(drawn - committed).mean() < 0.01
