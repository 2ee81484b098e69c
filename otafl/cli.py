"""The command line: `otafl run | sweep | check | list | show | plot | timeline | validate |
data`.

Exit codes: 0; 2 for what the user can mend, told in one message on stderr; 1 for an interruption,
for a law that fails validation and, with a traceback, for anything else. What is heavy is imported
inside the commands, so that `otafl --help` is quick.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otafl.errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from otafl.scenario import Scenario

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Simulate federated learning over wireless channels.",
)
data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Data sets.")
app.add_typer(data_app, name="data")


class Device(StrEnum):
    """Where the learning is computed."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", show_default=False)]
ResultFile = Annotated[
    Path, typer.Argument(metavar="RESULT", help="Result file (.nc), or folder of a sweep.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. training.rounds=50."),
]
DeviceOption = Annotated[Device | None, typer.Option(help="Processor; else engine.device.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Root = Annotated[str | None, typer.Option(help="Folder of the data; else $OTAFL_DATA_DIR.")]

PLAIN_EVERY_S = 10.0
BAR_EVERY_S = 0.1


def main(args: Sequence[str] | None = None) -> None:
    """Entry point. Always leaves by SystemExit or by an unexpected exception."""
    try:
        app(args=args, prog_name="otafl")
    except UserError as error:
        typer.echo(f"otafl: error: {error}", err=True)
        sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        from otafl import __version__

        typer.echo(f"otafl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="Else <output.folder>/<name>.nc.")
    ] = None,
    set_: Overrides = None,
    device: DeviceOption = None,
    quiet: Quiet = False,
) -> None:
    """Run a scenario into one file and a figure."""
    loaded = _load(scenario, set_, device)
    target = out or Path(loaded.output.folder) / f"{loaded.name}.nc"
    if target.suffix != ".nc" or target.is_dir():
        raise UserError(f"--out {target}: must be the name of a file that ends in .nc")
    _check_writable(target.parent)
    from otafl import sweeping

    with _interruptible(sweeping.unfinished(target)), Progress(quiet) as progress:
        dataset = sweeping.run(loaded, target, progress)
    _picture(dataset, target, target.with_suffix(".png"))


@app.command()
def sweep(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Else <output.folder>/<name>/.")
    ] = None,
    set_: Overrides = None,
    device: DeviceOption = None,
    quiet: Quiet = False,
) -> None:
    """Run a scenario into a folder; can be resumed."""
    loaded = _load(scenario, set_, device)
    folder = out or Path(loaded.output.folder) / loaded.name
    _check_writable(folder)
    from otafl import sweeping

    with _interruptible(folder), Progress(quiet) as progress:
        dataset = sweeping.sweep(loaded, folder, progress)
    _picture(dataset, folder, folder / f"{loaded.name}.png")


@app.command()
def check(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.yaml", show_default=False)
    ] = None,
    set_: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
) -> None:
    """Print a scenario filled in, or all its errors."""
    from otafl.scenario import expand, json_schema, to_yaml

    if schema:
        import json

        typer.echo(json.dumps(json_schema(), indent=2))
    elif scenario is None:
        raise UserError("check: give a scenario's file, or --schema for the JSON schema")
    else:
        loaded = _load(scenario, set_, None)
        points = len(expand(loaded))
        typer.echo(to_yaml(loaded).rstrip())
        typer.echo(f"{scenario}: valid; {_plural(points, 'point')}", err=True)


@app.command("list")
def list_(
    table: Annotated[str | None, typer.Argument(help="E.g. power; else all.")] = None,
) -> None:
    """List what a scenario can name."""
    from otafl import registry

    if table is not None and table not in registry.TABLES:
        raise UserError(f"list: no table {table!r}; known: {', '.join(registry.TABLES)}")
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for title in [table] if table else registry.TABLES:
        lines = Table(title=title, title_justify="left", box=None, show_header=False)
        lines.add_column(no_wrap=True)
        lines.add_column()
        for name, entry in registry.TABLES[title].items():
            cited = f" ({entry.citation})" if entry.citation else ""
            lines.add_row(name, f"{entry.summary}{cited}")
        console.print(lines)
        console.print()


@app.command()
def show(result: ResultFile) -> None:
    """Summarise a result."""
    from otafl.results import open_results
    from otafl.summary import print_summary

    print_summary(open_results(result))


@app.command()
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
    picked = _picked(sel)
    from otafl import plots
    from otafl.results import open_results

    folder = result if result.is_dir() else result.parent
    dataset = open_results(result)
    y = y or plots.main_variable(dataset)
    target = out or folder / f"{result.stem}_{y}_{x}.png"
    plots.plot(dataset, y, x, hue, facet, target, picked)
    typer.echo(str(target))


@app.command()
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
    picked, rows = _picked(sel), None if devices is None else _numbers(devices)
    from otafl import gantt
    from otafl import timeline as tables
    from otafl.results import open_results

    events = tables.timeline_of(open_results(result), trial, **picked)
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


@app.command()
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
            _check_writable(file.parent)
    from rich.console import Console

    from otafl.conformance import report, suite
    from otafl.conformance.bench import Bench

    bench = Bench(device.value, quick)
    chosen = suite.laws(only)
    with Console(stderr=True, quiet=quiet, highlight=False, markup=False).status("") as status:
        outcomes = suite.run(bench, chosen, lambda i, n, name: status.update(f"{i}/{n} {name}"))
    report.print_table(outcomes, Console(highlight=False, markup=False))
    typer.echo(report.summary(outcomes))
    if json is not None:
        report.write_json(outcomes, json)
    if csv is not None:
        report.write_csv(outcomes, csv)
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


@data_app.command("list")
def data_list(root: Root = None) -> None:
    """List the built-in data sets and where they are."""
    from rich.console import Console
    from rich.table import Table

    from otafl.data.fetch import available

    lines = Table(box=None)
    for title in ("name", "here", "where", "what"):
        lines.add_column(title, overflow="fold")
    for one in available(root):
        lines.add_row(one.name, "yes" if one.present else "no", one.where, one.description)
    Console(highlight=False, markup=False).print(lines)


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument()], root: Root = None) -> None:
    """Download a data set."""
    from otafl.data.fetch import fetch

    typer.echo(f"{name} is in {fetch(name, root)}")


class Progress:
    """Calls with (rounds done, rounds in all, note) as a bar in a terminal, else as a line every
    `PLAIN_EVERY_S` and at the end; nothing if quiet. All on stderr."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.first: tuple[int, float] | None = None
        self.told = time.monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.TextColumn("{task.completed:.0f}/{task.total:.0f} rounds", markup=False),
                progress.BarColumn(bar_width=None),
                progress.TextColumn("{task.fields[rate]}", markup=False),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                expand=True,
            )
            self.bar.start()
            self.bar.add_task("", total=1, rate="")
        return self

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self.first is None:
            # rounds that a resumed sweep finds done say nothing of its speed
            self.first = (done, now)
        elapsed = PLAIN_EVERY_S if self.bar is None else BAR_EVERY_S
        if self.quiet or (done < total and now - self.told < elapsed):
            return
        self.told = now
        rate = (done - self.first[0]) / max(now - self.first[1], 1e-9)
        speed = f"{rate:.0f} rounds/s" if done > self.first[0] else ""
        if self.bar is not None:
            self.bar.update(0, completed=done, total=total, rate=speed, description=note)
            return
        left = f"{(total - done) / rate:.0f} s left" if speed and done < total else ""
        line = ", ".join(part for part in (f"{done}/{total} rounds", speed, left, note) if part)
        typer.echo(line, err=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Ctrl-C ends with one sentence on what the sweep's folder keeps, and exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        parts = _plural(len(list((folder / "parts").glob("*.nc"))), "finished part")
        running = folder / "interrupted.nc"
        also = f", the records of the one that was running in {running.name}"
        kept = f"{parts} kept in {folder}{also if running.exists() else ''}"
        kept += "; the same command resumes from there"
        typer.echo(f"otafl: interrupted; {kept}", err=True)
        raise typer.Exit(1) from None


def _picked(sel: list[str] | None) -> dict[str, str]:
    """The values of `--sel dim=value`."""
    picked = {}
    for text in sel or []:
        dim, equals, value = text.partition("=")
        if not (dim and equals and value):
            raise UserError(f"--sel {text}: must be of the form dim=value")
        picked[dim] = value
    return picked


def _numbers(text: str) -> set[int]:
    """The devices of a list like 0-9,12."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.strip().isdecimal() and (last.strip().isdecimal() or not dash)):
            raise UserError(f"--devices {text}: must be numbers and ranges, e.g. 0-9 or 0,3,7")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def _load(path: Path, overrides: list[str] | None, device: Device | None) -> Scenario:
    from otafl.scenario import load_scenario

    chosen = [f"engine.device={device.value}"] if device else []
    return load_scenario(path, [*(overrides or []), *chosen])


def _check_writable(folder: Path) -> None:
    """Refuses before anything is computed that could not be written in the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".otafl"):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write there ({error.strerror}); choose another place with --out"
        ) from error


def _picture(dataset: xr.Dataset, result: Path, path: Path) -> None:
    from otafl.plots import overview

    overview(dataset, path)
    typer.echo(f"result: {result}  figure: {path}")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
