"""Define `otafl plot`, `otafl report` and `otafl timeline`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import (
    LabelOption,
    ResultFile,
    Slices,
    Trust,
    ignore_matplotlibrc,
    parse_labels,
    parse_selection,
    parse_slices,
    say,
)
from otafl.core.errors import UserError
from otafl.plots.kinds import Kind, Spread

if TYPE_CHECKING:
    import xarray as xr

Figure = Annotated[
    Path | None, typer.Option("--out", "-o", help="PNG, PDF or SVG; else beside the result.")
]


@ignore_matplotlibrc()
def plot(
    result: ResultFile,
    kind: Annotated[
        Kind | None,
        typer.Option(help="What to draw; curves, or with no option at all the overview of `run`."),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(help="Upwards: a variable, else the main accuracy; a heat map's: a dim."),
    ] = None,
    x: Annotated[
        str | None,
        typer.Option(
            help="Across. Curves: a dim, or a variable over rounds (airtime_s); else the round. "
            "Heat map: a dim. Pareto front, CDF: a variable."
        ),
    ] = None,
    z: Annotated[
        str | None, typer.Option(help="Variable in a heat map's cells; else the main accuracy.")
    ] = None,
    hue: Annotated[str | None, typer.Option(help="Dim whose values are colours.")] = None,
    facet: Annotated[str | None, typer.Option(help="Dim whose values are panels.")] = None,
    sel: Annotated[
        list[str] | None, typer.Option(metavar="DIM=VALUE", help="Draw one value of a dim.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(metavar="INCHES", help="Of the figure: 3.5 for a column, with short labels."),
    ] = None,
    spread: Annotated[
        Spread,
        typer.Option(
            help="Of bands and bars: standard deviation, standard error, or 95 % interval."
        ),
    ] = Spread.deviation,
    label: LabelOption = None,
    out: Figure = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what is drawn as CSV.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Draw variables, mean and spread over trials.

    Joules of devices are summed over them, except in a CDF, which shows their distribution. A
    partition, classes by device, and a map of the devices and their SNR are drawn of a scenario's
    file as well.
    """
    chosen, labels = parse_selection(sel), parse_labels(label)
    import xarray as xr

    from otafl.analysis.points import write_labels
    from otafl.plots import describe_figure, draw, draw_overview, write_csv
    from otafl.results.files import open_results

    flags = (y, x, z, hue, facet, csv, width)
    is_plain = spread is Spread.deviation and all(one is None for one in flags)
    if kind is None and not chosen and not labels and is_plain:
        target = out or _make_output_path(result, "overview.png")
        opened = open_results(result)
        draw_overview(opened, target)
        typer.echo(str(target))
        _print_chance_warning(opened, ())
        return
    kind = kind or Kind.curves
    source = kind.recipe.open_fn(result, trust)
    is_result = isinstance(source, xr.Dataset)
    if is_result:
        source = write_labels(source, labels)
        chosen = {dim: labels.get(value, value) for dim, value in chosen.items()}
    data = kind.compute_data(source, chosen, y=y, x=x, z=z, hue=hue, facet=facet)
    target = out or _make_output_path(result, f"{kind.recipe.file.format(**data.attrs)}.png")
    if csv is not None:
        write_csv(data, csv)
        typer.echo(str(csv))
    if not is_result:
        data = write_labels(data, labels)
    draw(data, target, width=width, spread=spread)
    typer.echo(str(target))
    if width is not None and (caption := describe_figure(data, spread)):
        typer.echo(caption, err=True)
    if kind not in (Kind.partition_, Kind.map):
        _print_chance_warning(source, [one for one in (x, y, z) if one is not None])


@ignore_matplotlibrc()
def report(
    result: ResultFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.html", help="Else beside it.")
    ] = None,
    sel: Slices = None,
) -> None:
    """Write a page to explore, with tables, tests and figures."""
    chosen = parse_slices(sel)
    target = out or _make_output_path(result, "report.html")
    if target.suffix not in (".html", ".htm"):
        raise UserError(f"--out {target}: must be the name of a file that ends in .html")
    from otafl import report as page
    from otafl.core.files import write_text
    from otafl.results.files import open_results

    opened = open_results(result)
    text = page.render_page(opened, result, chosen, lambda step: typer.echo(step, err=True))
    write_text(target, text)
    if lacking := page.describe_missing():
        typer.echo(f"otafl report: {lacking}", err=True)
    typer.echo(str(target))


@ignore_matplotlibrc()
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
    out: Figure = None,
) -> None:
    """Draw what every device did, and add it up."""
    chosen = parse_selection(sel)
    from otafl.analysis import timeline as tables
    from otafl.plots import gantt
    from otafl.results.files import open_results

    events = tables.extract_timeline(open_results(result), trial, **chosen)
    whole = tables.select_window(events, from_, until)
    if from_ is None and until is None:
        until = gantt.find_readable_time(events)
    target = out or _make_output_path(result, "timeline.png")
    gantt.draw_chart(events, target, from_, until)
    tables.print_totals(whole)
    if until is not None and until < whole.attrs["until_s"]:
        typer.echo(f"drawn until {until:.4g} s; --from and --until choose")
    typer.echo(str(target))


def _print_chance_warning(result: xr.Dataset, drawn: Collection[str]) -> None:
    """Print to stderr which of the requested accuracies are at chance.

    drawn : variables and dims that were asked for; the main accuracy where none was.
    """
    from otafl.analysis import cautions

    asked = [name for name in drawn if name in result.data_vars]
    if asked and not any(name.endswith("accuracy") for name in asked):
        return
    if guessed := cautions.describe_chance(result):
        say(guessed)


def _make_output_path(result: Path, name: str) -> Path:
    """Return the path of a file beside a result, or in the folder of a sweep."""
    return (result if result.is_dir() else result.parent) / f"{result.stem}_{name}"
