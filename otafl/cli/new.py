"""Define `otafl new`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from otafl.core.console import make_console, print_pairs
from otafl.core.errors import UserError
from otafl.core.files import write_text
from otafl.core.presets import list_presets, read_summary
from otafl.core.suggestions import format_suggestion

TEMPLATE = """\
{comment}

name: {name}
extends: {preset}  # `otafl list {preset}` prints its keys; those below replace them

data:
  name: digits              # 1,797 handwritten digits of 8x8 pixels
  partition: {{name: label_skew, classes_per_device: 4}}

model: {{name: mlp, hidden: [32]}}

algorithm: {{name: fedavg, learning_rate: 0.2}}

training: {{rounds: 100, local_steps: 5, batch_size: 20, eval_every: 10}}

trials: 3
seed: 0
"""
"""Scenario that starts from a preset."""

START = "start"
"""Group of the scenarios that belong to no study."""


def list_shipped() -> dict[str, Path]:
    """Return the scenarios that come with otafl, by name: the quickstart first, then by study.

    An installed package has them inside, a checkout beside the package: the build puts them there.
    """
    package = Path(__file__).parents[1]
    root = package if (package / "scenarios").is_dir() else package.parent
    start = (root / "scenarios").glob("*.yaml")
    files = sorted(start, key=lambda file: (file.stem != "quickstart", file))
    files += sorted((root / "studies").glob("*/*.yaml"))
    return {file.stem: file for file in files}


def new(
    name: Annotated[
        str | None,
        typer.Argument(help="Of the list, e.g. quickstart, or a preset."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Else NAME.yaml.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios there are.")] = False,
) -> None:
    """Write a scenario to start from.

    It is a copy of one that comes with otafl, or a short one with a preset.
    """
    if list_:
        _list()
        return
    if name is None:
        raise UserError("new: name a scenario, e.g. quickstart; `otafl new --list` has them all")
    stem, scenarios = Path(name).name.removesuffix(".yaml"), list_shipped()
    presets = list_presets()
    if stem not in scenarios and stem not in presets:
        hint = format_suggestion(stem, [*scenarios, *presets]) or ";"
        raise UserError(f"new: no scenario {name!r}{hint} `otafl new --list` has them all")
    target = out or Path(f"{stem}.yaml")
    if os.path.lexists(target):
        raise UserError(
            f"{target}: is there already and stays as it is; give another file with --out"
        )
    if stem in scenarios:
        # under another name, which its comments and its results then have
        file = scenarios[stem]
        text = file.read_text(encoding="utf-8")
        text = re.sub(rf"(scenarios|studies/\w+)/{file.name}", lambda _: str(target), text)
        text = re.sub(rf"\bresults/{file.stem}\b", f"results/{target.stem}", text)
        text = re.sub(rf"^name: {file.stem}\b", f"name: {target.stem}", text, flags=re.MULTILINE)
    else:
        comment, _, _ = presets[stem].read_text(encoding="utf-8").partition("\n#\n")
        text = TEMPLATE.format(comment=comment, preset=stem, name=target.stem)
    write_text(target, text)
    typer.echo(f"wrote {target}\nnext: otafl check {target}; otafl run {target}")


def _list() -> None:
    groups: dict[str, list[Path]] = {START: []}
    for file in list_shipped().values():
        group = START if file.parent.name == "scenarios" else f"studies/{file.parent.name}"
        groups.setdefault(group, []).append(file)
    groups[START] += list_presets().values()
    for group, files in groups.items():
        print_pairs(make_console(), ((file.stem, read_summary(file)) for file in files), group)
