"""Define `otafl new`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from otafl.core.console import make_console
from otafl.core.errors import UserError
from otafl.core.files import write_text
from otafl.core.suggestions import format_suggestion


def list_shipped() -> dict[str, Path]:
    """Return the scenarios that come with otafl, by name: the quickstart first, then by folder.

    An installed package has them inside, a checkout beside the package: the build puts them there.
    """
    package = Path(__file__).parents[1]
    inside = package / "scenarios"
    folder = inside if inside.is_dir() else package.parent / "scenarios"
    files = sorted(folder.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    files.sort(key=lambda file: file.stem != "quickstart")
    return {file.stem: file for file in files}


def _list_names() -> list[str]:
    return list(list_shipped())


def new(
    name: Annotated[
        str | None,
        typer.Argument(help="Of the list, e.g. quickstart.", autocompletion=_list_names),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Else NAME.yaml.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios there are.")] = False,
) -> None:
    """Copy a scenario that comes with otafl, to start from."""
    if list_:
        _list()
        return
    if name is None:
        raise UserError("new: name a scenario, e.g. quickstart; `otafl new --list` has them all")
    stem, scenarios = Path(name).name.removesuffix(".yaml"), list_shipped()
    if stem not in scenarios:
        hint = format_suggestion(stem, scenarios) or ";"
        raise UserError(f"new: no scenario {name!r}{hint} `otafl new --list` has them all")
    target = out or Path(f"{stem}.yaml")
    if os.path.lexists(target):
        raise UserError(
            f"{target}: is there already and stays as it is; give another file with --out"
        )
    write_text(target, _rename(scenarios[stem], target))
    typer.echo(f"wrote {target}\nnext: otafl check {target}; otafl run {target}")


def _rename(file: Path, target: Path) -> str:
    """Return a scenario's text under another name, which its comments and its results then have.

    Columns of comments stay below each other.
    """
    path = re.compile(rf"(scenarios/(?:\w+/)?{file.name})(  )?")
    text = path.sub(
        lambda found: f"{target!s:{len(found[1])}}  " if found[2] else str(target),
        file.read_text(encoding="utf-8"),
    )
    text = re.sub(rf"\bresults/{file.stem}\b", f"results/{target.stem}", text)
    return re.sub(rf"^name: {file.stem}\b", f"name: {target.stem}", text, flags=re.MULTILINE)


def _list() -> None:
    from rich.table import Table

    lines = Table(box=None, show_header=False)
    lines.add_column(no_wrap=True)
    lines.add_column()
    for name, file in list_shipped().items():
        lines.add_row(name, _read_summary(file))
    make_console().print(lines)


def _read_summary(file: Path) -> str:
    """Return the first sentence of the comment that a scenario opens with."""
    comment, _, _ = file.read_text(encoding="utf-8").partition("\n#\n")
    text = " ".join(line.removeprefix("# ") for line in comment.splitlines())
    return re.split(r"(?<=[.?])(?<!Fig\.)(?<!Figs\.) ", text)[0]
