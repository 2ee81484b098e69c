"""Tables of texts, as plain text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from otafl.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


class TableFormat(StrEnum):
    """Format of a printed table."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


SUFFIXES = {
    ".txt": TableFormat.text,
    ".md": TableFormat.markdown,
    ".tex": TableFormat.latex,
    ".csv": TableFormat.csv,
}


def choose_format(given: TableFormat | None, path: Path | None) -> TableFormat:
    """Return the format that is asked for, else that of the file's name, else text.

    Raises
    ------
    UserError : for a file whose name says neither.
    """
    if given is not None or path is None:
        return given or TableFormat.text
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"--out {path}: expected a name that ends in {', '.join(SUFFIXES)}; rename it, or "
            "give --format"
        )
    return SUFFIXES[path.suffix.lower()]


@dataclass(frozen=True)
class TextTable:
    """Table of texts that has a form in each format.

    Parameters
    ----------
    caption : what the table shows.
    titles : of the columns, in one line.
    rows : cells; a mean has the form "0.80 ± 0.02", between stars where it is bold.
    frame : what a CSV file has.
    left : how many columns name the row, and are aligned to the left; all others to the right.
    """

    caption: str
    titles: list[str]
    rows: list[list[str]]
    frame: pd.DataFrame
    left: int = 1

    def format(self, shape: TableFormat) -> str:
        """Return the whole text, with its caption except in CSV."""
        if shape is TableFormat.csv:
            return str(self.frame.to_csv(index=False)).rstrip("\n")
        if shape is TableFormat.latex:
            # the table with rules of the LaTeX package booktabs
            import pandas as pd  # a third of a second, also of --help

            left = self.left
            rows = [
                [*map(escape_latex, row[:left]), *map(_write_latex_cell, row[left:])]
                for row in self.rows
            ]
            cells = pd.DataFrame(rows, columns=[*map(escape_latex, self.titles)])
            text = cells.style.hide(axis="index").to_latex(
                column_format="l" * left + "r" * (len(self.titles) - left),
                position_float="centering",
                hrules=True,
                caption=f"{escape_latex(self.caption)}.",
            )
            return str(text).rstrip()
        body = self.format_markdown() if shape is TableFormat.markdown else self._format_text()
        return f"{self.caption}\n\n{body}"

    def format_markdown(self) -> str:
        """Return the table of GitHub's Markdown, without its caption."""
        head, *rows = [
            [cell.replace("|", "\\|") for cell in row] for row in (self.titles, *self.rows)
        ]
        lines = [head, ["---"] * len(head), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def _format_text(self) -> str:
        """Return the table aligned with spaces for a terminal."""
        rows = [self.titles, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(lines)


NUMBER = r"-?[\d.]+(?:e[+-]\d+)?"
MEAN = re.compile(rf"(\*\*)?({NUMBER}( ± {NUMBER})?)(\*\*)?( \(n = (\d+)\))?")


def _write_latex_cell(cell: str) -> str:
    """Write a cell as LaTeX takes it: mean and deviation as a formula, bold between stars."""
    found = MEAN.fullmatch(cell)
    if not found:
        return "--" if cell == "-" else escape_latex(cell)
    said = found[2].replace("±", r"\pm")
    said = re.sub(r"e([+-]\d+)", lambda power: rf" \times 10^{{{int(power[1])}}}", said)
    count = f" ($n = {found[6]}$)" if found[6] else ""
    return (rf"$\mathbf{{{said}}}$" if found[1] else f"${said}$") + count


def escape_latex(words: str) -> str:
    """Write a text as LaTeX takes it; numbers get a true minus sign."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {one: f"\\{one}" for one in "&%$#_{}"} | {"±": r"$\pm$", "µ": r"\textmu{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    out = "".join(special.get(one, one) for one in words)
    return re.sub(r"^-(?=\d)", r"$-$", out)
