"""Write the tables of a page of results from what its study's script prints.

A page names its commands, and marks the place of each table by the title that the script prints, or
that of all of them, which then have their titles above them:

    <!-- tables: python -m studies.field.analyse studies -->
    <!-- table: Steps chosen -->
    ...
    <!-- end table -->

    <!-- every table -->
    ...
    <!-- end -->

`<!-- every table but TEXT; TEXT -->` leaves out those with one of these texts in their titles.

    python -m studies.common.write_tables studies/field/README.md [more pages] [--check]

With --check no page is written; the exit code is 1 if a table differs from the data.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"<!-- tables: python -m (.+?) -->")
EVERY = re.compile(r"(<!-- every table(?: but (.+?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- table: (.+?) -->\n)(.*?)(<!-- end table -->)", re.DOTALL)


class UnknownTableError(Exception):
    """A page names a command that is not there, or marks a table that none of them prints."""


def collect_tables(printed: str) -> dict[str, str]:
    """Collect the Markdown tables in a script's output.

    Parameters
    ----------
    printed : output in which a line of text, the title, precedes each table.

    Returns
    -------
    dict of title -> lines of the table; a title that is printed again counts on: "title (2)".
    """
    tables: dict[str, str] = {}
    title, rows = "", list[str]()
    for line in [*printed.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if rows:
            count = 1 + sum(name == title or name.startswith(f"{title} (") for name in tables)
            tables[title if count == 1 else f"{title} ({count})"] = "\n".join(rows) + "\n"
            rows = []
        title = line.strip() or title
    return tables


def fill_page(page: str, tables: dict[str, str]) -> str:
    """Return the page with each marked table replaced by the one of its title, or all of them.

    Raises
    ------
    UnknownTableError
        if a marker names a table that is not in `tables`, or leaves one out that is not there.
    """

    def replace(found: re.Match[str]) -> str:
        start, title, _, end = found.groups()
        if title not in tables:
            known = "; ".join(tables)
            raise UnknownTableError(f"expected a printed table, got {title!r}; known: {known}")
        return f"{start}{tables[title]}{end}"

    def replace_every(found: re.Match[str]) -> str:
        start, but, _, end = found.groups()
        left_out = but.split("; ") if but else []
        for text in left_out:
            if not any(text in title for title in tables):
                raise UnknownTableError(f"expected a text of a title, got {text!r}")
        kept = (one for one in tables if not any(text in one for text in left_out))
        titled = "".join(f"\n**{title}**\n\n{tables[title]}" for title in kept)
        return f"{start}{titled}\n{end}"

    return EVERY.sub(replace_every, TABLE.sub(replace, page))


def run_command(command: str, folder: Path) -> str:
    """Run a module in a folder for its figures, and return what it prints.

    It runs in this process, which has imported most of what it needs.
    """
    module, *arguments = shlex.split(command)
    arguments = [str(ROOT / one) if (ROOT / one).exists() else one for one in arguments]
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        mock.patch.object(sys, "argv", [module, *arguments]),
        mock.patch.object(sys, "path", [str(ROOT), *sys.path]),
        mock.patch.dict(os.environ, MPLBACKEND="agg"),
    ):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise UnknownTableError(f"expected a module of this checkout, got {module!r}")
        runpy.run_path(spec.origin, run_name="__main__")
    return printed.getvalue()


def run_commands(page: str, folder: Path) -> dict[str, str]:
    """Run the commands that a page names, each once; collect their tables."""
    tables: dict[str, str] = {}
    for command in dict.fromkeys(COMMAND.findall(page)):
        tables |= collect_tables(run_command(command, folder))
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path, help="Markdown pages with markers")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    args = parser.parse_args()
    changed = []
    for path in args.pages:
        page = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            filled = fill_page(page, run_commands(page, Path(folder)))
        if filled != page:
            changed.append(str(path))
            if not args.check:
                path.write_text(filled)
    if changed:
        print("differs from the data:" if args.check else "written:", ", ".join(changed))
    sys.exit(bool(changed) and args.check)


if __name__ == "__main__":
    main()
