"""`otafl show`."""

from __future__ import annotations

import typer

from otafl.cli.app import ResultFile


def add(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(show)


def show(result: ResultFile) -> None:
    """Summarise a result."""
    from otafl.results import open_results
    from otafl.summary import print_summary

    print_summary(open_results(result))
