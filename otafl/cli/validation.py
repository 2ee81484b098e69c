"""Define `otafl validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import Device, Quiet, check_writable
from otafl.core.console import make_console


def validate(
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="A quarter of the samples, or all.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Processor.")] = Device.cpu,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Laws whose name contains this.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every check as JSON.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every check as CSV.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Check the uplink against its closed forms."""
    for file in (json, csv):
        if file is not None:
            check_writable(file.parent)

    from otafl.laws import privacy, report, suite
    from otafl.laws.bench import Bench

    bench = Bench(device.value, quick)
    chosen = suite.list_laws(only)
    with make_console(stderr=True, quiet=quiet).status("") as status:
        outcomes = suite.run(bench, chosen, lambda i, n, name: status.update(f"{i}/{n} {name}"))
    report.print_table(outcomes, make_console())
    typer.echo(report.format_summary(outcomes))
    if missing := privacy.list_left_out():
        typer.echo(missing)
    if json is not None:
        report.write_json(outcomes, json)
    if csv is not None:
        report.write_checks(outcomes, csv)
    if not all(outcome.is_passed for outcome in outcomes):
        raise typer.Exit(1)
