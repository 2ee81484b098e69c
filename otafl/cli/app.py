"""Application that the commands are added to, and helpers that several of them share."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.core.errors import UserError
from otafl.core.files import MIB, read_text

if TYPE_CHECKING:
    from otafl.scenario import Scenario

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Simulate federated learning over wireless channels.",
)

MIN_ADDRESS_SPACE = 2048 * MIB
"""Smallest address space in which the libraries can be loaded."""

MATPLOTLIBRC = "matplotlibrc"
"""The file of the working folder that Matplotlib obeys before the user's own."""

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO.yaml", show_default=False)]
ResultFile = Annotated[
    Path, typer.Argument(metavar="RESULT", help="Result file (.nc), or folder of a sweep.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, e.g. training.rounds=50.",
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Run code of yours that the files name.")]
Slices = Annotated[
    list[str] | None,
    typer.Option("--sel", metavar="DIM=VALUE", help="Keep a value of a dim; again for more."),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=TEXT",
        help="Text for a variable, an axis or one of its values.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


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
) -> None:
    """Take the options that come before a command.

    Raises UserError for surroundings in which a library would fail or wait: a small address space,
    an unknown backend of Matplotlib, or a file of the working folder that Matplotlib cannot read.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if resource.RLIM_INFINITY != limit < MIN_ADDRESS_SPACE:
        raise UserError(
            f"this program may use {limit / MIB:,.0f} MiB of address space (`ulimit -v`), and its "
            f"libraries need {MIN_ADDRESS_SPACE / MIB:,.0f} MiB; use a higher limit"
        )
    if backend := os.environ.get("MPLBACKEND"):
        try:
            import matplotlib  # noqa: F401
        except ValueError as error:
            raise UserError(
                f"MPLBACKEND: expected a backend of Matplotlib, got {backend!r}; unset the "
                "variable, or use agg"
            ) from error
    try:
        read_text(MATPLOTLIBRC, MIB)
    except (FileNotFoundError, IsADirectoryError):  # Matplotlib ignores a folder
        pass
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "is no text in UTF-8")
        raise UserError(
            f"{MATPLOTLIBRC}: Matplotlib cannot read this file of the working folder ({reason}); "
            "move it away"
        ) from error


@contextmanager
def ignore_matplotlibrc() -> Iterator[None]:
    """Draw with the user's own settings of Matplotlib, not with those of the working folder."""
    import matplotlib

    with matplotlib.rc_context():
        if matplotlib.matplotlib_fname() == MATPLOTLIBRC:
            named = os.environ.get("MATPLOTLIBRC", os.devnull)
            own = (os.path.join(one, MATPLOTLIBRC) for one in (named, matplotlib.get_configdir()))
            matplotlib.rcdefaults()
            if found := next(filter(os.path.isfile, (named, *own)), None):
                matplotlib.rc_file(found)
        yield


def say(text: str) -> None:
    """Print a line to stderr; if it cannot be written, the command goes on."""
    with suppress(OSError):
        typer.echo(f"otafl: {text}", err=True)


def parse_slices(sel: list[str] | None) -> dict[str, list[str]]:
    """Return the values of `--sel dim=value`; a dim that is given again has several values."""
    picked: dict[str, list[str]] = {}
    for text in sel or []:
        dim, equals, value = text.partition("=")
        if not (dim and equals and value):
            raise UserError(f"--sel {text}: must be of the form dim=value")
        picked.setdefault(dim, []).append(value)
    return picked


def parse_selection(sel: list[str] | None) -> dict[str, str]:
    """Return the values of `--sel dim=value`; of a dim that is given again the last one."""
    return {dim: values[-1] for dim, values in parse_slices(sel).items()}


def parse_labels(given: list[str] | None) -> dict[str, str]:
    """Return name -> text of `--label name=text`; a name may have "=" in its parentheses."""
    labels = {}
    for text in given or []:
        name, equals, said = text.rpartition("=")
        if not (name and equals and said):
            raise UserError(f"--label {text}: must be of the form name=text, like gbma=equal power")
        labels[name] = said
    return labels


def split_names(text: str | None) -> list[str]:
    """Return the names of a list with commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def load(path: Path, overrides: list[str] | None) -> Scenario:
    """Load a scenario that is about to run, with the options applied, and print its notes."""
    from otafl.preflight import report

    found = report(path, overrides or ())
    warn(found.warnings)
    return found.scenario


def warn(texts: Iterable[str]) -> None:
    """Print warnings."""
    for text in texts:
        say(f"warning: {text}")


def check_writable(folder: Path) -> None:
    """Refuse before anything is computed that could not be written in the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".otafl"):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write there ({error.strerror}); choose another place with --out"
        ) from error
