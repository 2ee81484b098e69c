"""Run the scenarios of docs/recipes.md, and write what they print and draw into the page.

A recipe is a block of commands, a scenario, and a marker that names the variables of its table:

    otafl sweep noise_limit.yaml
    otafl plot results/noise_limit --x snr_db --width 3.5 --out noise_limit.png

    <!-- table: noise_limit: test_accuracy aggregation_nmse -->
    ...
    <!-- end table -->

The commands run as they stand, in a folder of their own. The picture that they draw goes to
docs/pictures/recipes, with 64 colours.

A block of Python that begins with `# noise_limit.py` runs first, and makes files.

    python scripts/write_recipes.py [noise_limit ...] [--check]

With --check nothing is written; the exit code is 1 if a table differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from PIL import Image

import otafl
from otafl import cli
from otafl.analysis.tables import build_grid, build_text_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipes.md"
PICTURES = PAGE.parent / "pictures" / "recipes"
BLOCK = re.compile(r"^```yaml\n# (\w+)\.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETUP = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(otafl sweep (\w+)\.yaml\n.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(<!-- table: (\w+): (.*?) -->\n)(.*?)(<!-- end table -->)", re.DOTALL)


class Recipe(NamedTuple):
    """Scenario, commands and variables of a recipe.

    Parameters
    ----------
    scenario : str
        Text of the scenario's file.
    commands : list of str
        Lines for a shell, which sweep the scenario and draw its picture.
    variables : list of str
        Result variables of the table.
    setup : str
        Python that makes files of the scenario, or empty.
    """

    scenario: str
    commands: list[str]
    variables: list[str]
    setup: str = ""


def read_recipes(page: str) -> dict[str, Recipe]:
    """Read the recipes of a page by their names."""
    scenarios = dict(BLOCK.findall(page))
    commands = {name: text.splitlines() for text, name in COMMANDS.findall(page)}
    setups = dict(SETUP.findall(page))
    return {
        name: Recipe(scenarios[name], commands[name], variables.split(), setups.get(name, ""))
        for _, name, variables, _, _ in TABLE.findall(page)
    }


def run_recipe(name: str, recipe: Recipe, folder: Path) -> str:
    """Run the commands of a recipe in a folder, and write a Markdown table of its variables.

    Parameters
    ----------
    name : str
        Name of the scenario.
    recipe : Recipe
        Scenario, commands and variables.
    folder : Path
        Folder of the scenario, the results and the picture.

    Returns
    -------
    str
        Table by the axes of the sweep.
    """
    (folder / f"{name}.yaml").write_text(recipe.scenario)
    with contextlib.chdir(folder):
        exec(recipe.setup, {})
        for line in recipe.commands:
            run_command(line)
        result = otafl.open_results(f"results/{name}")
    reduce_colours(folder / f"{name}.png")
    table = build_text_table(build_grid(result, recipe.variables))
    return f"\n{table.format_markdown()}\n\n"


def run_command(line: str) -> None:
    """Run a command of a page, and raise its SystemExit if it fails."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main(shlex.split(line)[1:])
    except SystemExit as left:
        if left.code:
            raise


def reduce_colours(picture: Path) -> None:
    """Reduce a picture to 64 colours, a quarter of its bytes."""
    with Image.open(picture) as drawn:
        reduced = drawn.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    reduced.save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("recipes", nargs="*", help="names; all if none is given")
    parser.add_argument("--check", action="store_true", help="only compare tables")
    given = parser.parse_args()
    page = PAGE.read_text()
    for name, recipe in read_recipes(page).items():
        if given.recipes and name not in given.recipes:
            continue
        with tempfile.TemporaryDirectory() as folder:
            table = run_recipe(name, recipe, Path(folder))
            drawn = (Path(folder) / f"{name}.png").read_bytes()
        old = next(text for _, other, _, text, _ in TABLE.findall(page) if other == name)
        if given.check and table != old:
            sys.exit(f"{name}: the page's table differs from\n{table}")
        print(name, table, flush=True)
        page = page.replace(
            f"{name}: {' '.join(recipe.variables)} -->\n{old}",
            f"{name}: {' '.join(recipe.variables)} -->\n{table}",
        )
        if not given.check:
            PAGE.write_text(page)
            (PICTURES / f"{name}.png").write_bytes(drawn)


if __name__ == "__main__":
    main()
