"""Define `otafl run` and `otafl sweep`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import (
    Overrides,
    Quiet,
    ScenarioFile,
    check_writable,
    ignore_matplotlibrc,
    load,
    say,
)
from otafl.cli.process import interruption
from otafl.core.console import Progress
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count

if TYPE_CHECKING:
    import xarray as xr


Workers = Annotated[
    int,
    typer.Option(
        min=0,
        help="Programs that share the stacks; 0: this one. Their number changes the last bits.",
    ),
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="tls://...", help="Of Dask workers that share them.")
]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        metavar="ROUNDS", min=0, help="Save the state after every ROUNDS rounds; 0: never."
    ),
]


def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="Else <output.folder>/<name>.nc.")
    ] = None,
    set_: Overrides = None,
    workers: Workers = 0,
    scheduler: Scheduler = None,
    checkpoint_every: CheckpointEvery = 0,
    quiet: Quiet = False,
) -> None:
    """Run a scenario into one file and a figure; can be resumed."""
    loaded = load(scenario, set_)
    from otafl import sweeping

    target = out or sweeping.name_own_file(loaded)
    if target.suffix != ".nc" or target.is_dir():
        raise UserError(f"--out {target}: must be the name of a file that ends in .nc")
    check_writable(target.parent)
    with _report_kept(sweeping.get_unfinished_folder(target)), Progress(quiet) as progress:
        dataset = sweeping.run(loaded, target, progress, checkpoint_every, say, workers, scheduler)
    _finish(dataset, target, target.with_suffix(".png"), quiet)


def sweep(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Else <output.folder>/<name>/.")
    ] = None,
    set_: Overrides = None,
    workers: Workers = 0,
    scheduler: Scheduler = None,
    checkpoint_every: CheckpointEvery = 0,
    quiet: Quiet = False,
) -> None:
    """Run a scenario into a folder; can be resumed."""
    loaded = load(scenario, set_)
    folder = out or Path(loaded.output.folder) / loaded.name
    check_writable(folder)
    from otafl import sweeping

    with _report_kept(folder), Progress(quiet) as progress:
        dataset = sweeping.sweep(
            loaded, folder, progress, workers, scheduler, checkpoint_every, say
        )
    _finish(dataset, folder, folder / f"{loaded.name}.png", quiet)


@contextmanager
def _report_kept(folder: Path) -> Iterator[None]:
    """Report on an interruption what the sweep's folder keeps.

    Report which stacks failed, and exit with code 1.
    """
    from otafl.results.files import list_parts
    from otafl.sweeping import FailedStacks

    def describe_kept() -> str:
        parts = format_count(len(list_parts(folder)), "finished part")
        more = ", and checkpoints of what was running" if any(folder.glob("running/*.pt")) else ""
        return f"{parts} kept in {folder}{more}; the same command resumes from there"

    interruption.describe_kept_fn = describe_kept
    try:
        yield
    except FailedStacks as error:
        say(str(error))
        raise typer.Exit(1) from None


@ignore_matplotlibrc()
def _finish(dataset: xr.Dataset, result: Path, path: Path, quiet: bool) -> None:
    """Draw the overview, and say what came of it and what can be done with it."""
    interruption.describe_kept_fn = lambda: (
        f"the result is whole in {result}, and `otafl plot` draws it"
    )
    from otafl.analysis.cautions import describe_ended_paths, describe_lost_runs
    from otafl.plots import draw_overview
    from otafl.results.end_values import describe_diverged

    draw_overview(dataset, path)
    if not quiet:
        from otafl.analysis.summary import print_ends

        print_ends(dataset)
        typer.echo(f"\nnext: otafl show {result}; otafl plot {result}; otafl report {result}")
    else:
        for describe in (describe_diverged, describe_lost_runs, describe_ended_paths):
            if said := describe(dataset):
                say(said)
    typer.echo(f"result: {result}  figure: {path}")
