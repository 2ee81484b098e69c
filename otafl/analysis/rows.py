"""Tables of texts, as plain text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from otafl.core.errors import UserError


class Format(StrEnum):
    """Format of a printed table."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


SUFFIXES = {
    ".txt": Format.text,
    ".md": Format.markdown,
    ".tex": Format.latex,
    ".csv": Format.csv,
}


def choose_format(given: Format | None, path: Path | None) -> Format:
    """Return the format that is asked for, else that of the file's name, else text.

    Raises
    ------
    UserError : for a file whose name says neither.
    """
    if given is not None or path is None:
        return given or Format.text
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"--out {path}: expected a name that ends in {', '.join(SUFFIXES)}; rename it, or "
            "give --format"
        )
    return SUFFIXES[path.suffix.lower()]


def format_text_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the head first, aligned with spaces for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def format_markdown_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of GitHub's Markdown."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    lines = [escaped[0], ["---"] * len(head), *escaped[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_latex_rows(
    heads: Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    caption: str,
    left: int = 1,
) -> str:
    """Return rows as a table with rules of the LaTeX package booktabs.

    Parameters
    ----------
    heads, caption : texts, which are escaped; of each column its heads from above, of which equal
        neighbours share a cell.
    rows : cells in LaTeX.
    left : how many columns name the row, and are aligned to the left; all others to the right.
    """
    import pandas as pd  # type: ignore[import-untyped]  # a third of a second, also of --help

    escaped = [tuple(map(escape_latex, head)) for head in heads]
    columns = pd.MultiIndex.from_tuples(escaped) if len(escaped[0]) > 1 else [h for (h,) in escaped]
    cells = pd.DataFrame(rows)
    names = cells.iloc[:, : left - 1]
    repeated = (names == names.shift()).cummin(axis=1)  # in the row above, with all before it
    cells = cells.mask(repeated.reindex(columns=cells.columns, fill_value=False), "")
    return str(
        cells.set_axis(columns, axis=1)
        .style.hide(axis="index")
        .to_latex(
            column_format="l" * left + "r" * (len(heads) - left),
            position_float="centering",
            hrules=True,
            caption=f"{escape_latex(caption)}.",
            multicol_align="c",
        )
    ).rstrip()


def escape_latex(words: str) -> str:
    """Write a text as LaTeX takes it; numbers get a true minus sign."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {one: f"\\{one}" for one in "&%$#_{}"} | {"±": r"$\pm$", "µ": r"\textmu{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    out = "".join(special.get(one, one) for one in words)
    return re.sub(r"^-(?=\d)", r"$-$", out)
