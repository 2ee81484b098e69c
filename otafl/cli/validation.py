"""Define `otafl validate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import Quiet, check_writable
from otafl.core.console import make_console

Device = StrEnum("Device", ["cpu", "cuda"])
"""Where the laws are computed."""

LAWS_A_LINE = 10
"""Laws between two lines of progress where the output is not a terminal."""


def validate(
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="A quarter of the samples, or all.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Processor.")] = Device.cpu,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Laws whose name contains this.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every check as CSV.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw where every check lies in its interval."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Check the installation against closed forms."""
    for file in (csv, figure):
        if file is not None:
            check_writable(file.parent)
    from otafl.validation import report, suite
    from otafl.validation.bench import Bench

    bench = Bench(device.value, quick)
    chosen = suite.list_laws(only)
    console = make_console(stderr=True, quiet=quiet)

    def show(index: int, count: int, name: str) -> None:
        status.update(f"{index}/{count} {name}")
        if not console.is_terminal and index % LAWS_A_LINE == 0:
            console.print(f"{index}/{count} laws, now {name}")

    with console.status("") as status:
        outcomes = suite.run(bench, chosen, show)
    report.print_table(outcomes, make_console())
    typer.echo(report.format_summary(outcomes))
    if csv is not None:
        report.write_checks(outcomes, csv)
    if figure is not None:
        report.draw_figure(outcomes, figure)
    if not all(outcome.is_passed for outcome in outcomes):
        raise typer.Exit(1)
