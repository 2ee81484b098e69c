"""Define the commands of `otafl data`."""

from __future__ import annotations

from typing import Annotated

import typer

from otafl.core.console import make_console

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Data sets.")


@app.command("list")
def data_list() -> None:
    """List the built-in data sets, where they are, and whether their checksums are right."""
    from rich.table import Table

    from otafl.data.files import list_available

    lines = Table(box=None)
    for title in ("name", "here", "where", "what"):
        lines.add_column(title, overflow="fold")
    for row in list_available():
        lines.add_row(*row)
    make_console().print(lines)


@app.command("get")
def data_get(name: Annotated[str, typer.Argument()]) -> None:
    """Download a data set to the folder that $OTAFL_DATA_DIR names."""
    from otafl.data.files import fetch

    typer.echo(f"{name} is in {fetch(name)}")
