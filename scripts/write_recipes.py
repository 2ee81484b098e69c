"""Run the scenarios of docs/recipes.md, and write what they print into the page.

A scenario is a YAML block, and a marker below it names its variables:

    <!-- table: noise_limit: test_accuracy aggregation_nmse -->
    ...
    <!-- end table -->

    python scripts/write_recipes.py [noise_limit ...] [--check]

With --check no page is written; the exit code is 1 if a table differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import yaml

import otafl
from otafl.analysis.tables import build_grid, format_markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes.md"
BLOCK = re.compile(r"^```yaml\n# (\w+)\.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(<!-- table: (\w+): (.*?) -->\n)(.*?)(<!-- end table -->)", re.DOTALL)


def read_recipes(page: str) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Read the scenario and the variables of each recipe of a page."""
    scenarios = {name: yaml.safe_load(text) for name, text in BLOCK.findall(page)}
    shown = {name: variables.split() for _, name, variables, _, _ in TABLE.findall(page)}
    return {name: (scenarios[name], shown[name]) for name in shown}


def write_table(scenario: dict[str, Any], variables: list[str]) -> str:
    """Run a scenario, and write a Markdown table of its variables.

    Parameters
    ----------
    scenario : dict of str to any
        Keys of the scenario.
    variables : list of str
        Variables of the result.

    Returns
    -------
    str
        Table by the axes of the sweep.
    """
    result = otafl.run(scenario)
    return f"\n{format_markdown(build_grid(result, variables)).rstrip()}\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("recipes", nargs="*", help="names; all if none is given")
    parser.add_argument("--check", action="store_true", help="only compare tables")
    given = parser.parse_args()
    page = PAGE.read_text()
    for name, (scenario, variables) in read_recipes(page).items():
        if given.recipes and name not in given.recipes:
            continue
        table = write_table(scenario, variables)
        old = next(text for _, other, _, text, _ in TABLE.findall(page) if other == name)
        if given.check and table != old:
            sys.exit(f"{name}: the page's table differs from\n{table}")
        print(name, table, flush=True)
        page = page.replace(
            f"{name}: {' '.join(variables)} -->\n{old}",
            f"{name}: {' '.join(variables)} -->\n{table}",
        )
        if not given.check:
            PAGE.write_text(page)


if __name__ == "__main__":
    main()
