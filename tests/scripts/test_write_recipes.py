"""The recipes: twenty questions, each with an answer, a picture, a scenario and its table."""

from __future__ import annotations

import re
import runpy
from importlib import import_module
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


def test_twenty_questions_with_answers() -> None:
    parts = PAGE.split("\n## ")[1:]
    assert len(parts) == len(RECIPES) == 20
    for part, name in zip(parts, RECIPES, strict=True):
        question, answer, picture = part.splitlines()[2:7:2]
        assert question.endswith("?")
        assert re.search(r"More: \[.+\]\(.+\)\.$", answer), answer
        assert picture.endswith(f"](pictures/recipes/{name}.png)")
        assert TOOL["COMMANDS"].search(part)[2] == name


def test_each_recipe_has_a_small_picture() -> None:
    pictures = {file.stem: file.stat().st_size for file in TOOL["PICTURES"].iterdir()}
    assert set(pictures) == set(RECIPES)
    assert max(pictures.values()) < 30_000


def test_the_site_has_a_card_for_each_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    with_gallery = import_module("otafl_docs.recipes").with_gallery
    shown = with_gallery(PAGE)
    assert re.findall(r"^:img-top: pictures/recipes/(\w+)\.png$", shown, re.MULTILINE) == [*RECIPES]
    for anchor in re.findall(r'^:link: "#(\S+)"$', shown, re.MULTILINE):
        assert f"\n## {anchor.replace('-', ' ')}\n" in PAGE.lower()


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
@pytest.mark.parametrize("name", ["noise_limit", "dropout"])  # examples: quick ones
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
