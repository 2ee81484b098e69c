"""The page of recipes: twenty questions, each with a scenario, its table and an answer.

Mutations that must fail: a table of another axis, a recipe without an answer, a table left out.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from otafl.core.errors import UserError
from otafl.results.variables import VARIABLES
from otafl.scenario import expand, load_scenario

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "scripts" / "write_recipes.py"))
PAGE = (ROOT / "docs" / "recipes.md").read_text()
RECIPES = TOOL["read_recipes"](PAGE)


def test_twenty_questions_with_answers() -> None:
    parts = PAGE.split("\n## ")[1:]
    assert len(parts) == len(RECIPES) == 20
    for part in parts:
        assert part.splitlines()[2].endswith("?")
        answer = part.partition("<!-- end table -->")[2].strip()
        assert re.search(r"More: \[.+\]\(.+\)\.$", answer), answer


@pytest.mark.parametrize("name", RECIPES)
def test_a_table_has_a_row_for_each_point(name: str) -> None:
    scenario, variables = RECIPES[name]
    assert scenario["name"] == name
    assert set(variables) <= set(VARIABLES)
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
def test_a_table_is_what_the_scenario_gives(name: str) -> None:
    table = next(text for _, other, _, text, _ in TOOL["TABLE"].findall(PAGE) if other == name)
    assert TOOL["write_table"](*RECIPES[name]) == table
