"""`otafl plot` and `otafl timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import ResultFile, picked
from otafl.errors import UserError


def add(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(plot)
    app.command()(timeline)


def plot(
    result: ResultFile,
    y: Annotated[
        str | None, typer.Option(help="Variable to draw; else the main accuracy there is.")
    ] = None,
    x: Annotated[str, typer.Option(help="Dim, or a variable over rounds (airtime_s).")] = "round",
    hue: Annotated[str | None, typer.Option(help="Dim whose values are curves.")] = None,
    facet: Annotated[str | None, typer.Option(help="Dim whose values are panels.")] = None,
    sel: Annotated[
        list[str] | None, typer.Option(metavar="DIM=VALUE", help="Draw one value of a dim.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="PNG, PDF or SVG; else beside the result.")
    ] = None,
) -> None:
    """Draw a variable, mean and spread over trials."""
    chosen = picked(sel)
    from otafl import plots
    from otafl.results import open_results

    folder = result if result.is_dir() else result.parent
    dataset = open_results(result)
    y = y or plots.main_variable(dataset)
    target = out or folder / f"{result.stem}_{y}_{x}.png"
    plots.plot(dataset, y, x, hue, facet, target, chosen)
    typer.echo(str(target))


def timeline(
    result: ResultFile,
    trial: Annotated[int, typer.Option(help="Trial to draw.")] = 0,
    sel: Annotated[
        list[str] | None, typer.Option(metavar="DIM=VALUE", help="Point of a sweep.")
    ] = None,
    from_: Annotated[
        float | None, typer.Option("--from", metavar="S", help="First simulated second.")
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(metavar="S", help="Last simulated second; else what can be read."),
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="LIST", help="E.g. 0-9 or 0,3,7; else all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="PNG, PDF or SVG; else beside the result.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the events as CSV.")
    ] = None,
) -> None:
    """Draw what every device did, and add it up."""
    chosen, rows = picked(sel), None if devices is None else _numbers(devices)
    from otafl import gantt
    from otafl import timeline as tables
    from otafl.results import open_results

    events = tables.timeline_of(open_results(result), trial, **chosen)
    whole = tables.window(events, from_, until, rows)
    if from_ is None and until is None:
        until = gantt.readable_s(events)
    folder = result if result.is_dir() else result.parent
    target = out or folder / f"{result.stem}_timeline.png"
    gantt.chart(events, target, from_, until, rows)
    if csv is not None:
        tables.write_csv(whole, csv)
    tables.print_totals(whole)
    if until is not None and until < whole.attrs["until_s"]:
        typer.echo(f"drawn until {until:.4g} s; --from and --until choose")
    typer.echo(str(target))


def _numbers(text: str) -> set[int]:
    """The devices of a list like 0-9,12."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.strip().isdecimal() and (last.strip().isdecimal() or not dash)):
            raise UserError(f"--devices {text}: must be numbers and ranges, e.g. 0-9 or 0,3,7")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
