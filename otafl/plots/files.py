"""Write figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otafl.core.errors import UserError
from otafl.core.files import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")


def check_suffix(path: Path | str | None) -> None:
    """Refuse a file that a figure cannot be written to."""
    if path is not None and Path(path).suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a figure's file must end in .png, .pdf or .svg")


def save(figure: Figure, path: Path | str | None) -> None:
    """Write a figure, whole or not at all, where there is a path. Raises WriteError."""
    if path is not None:
        with written(Path(path)) as temporary:
            figure.savefig(temporary, dpi=160, format=Path(path).suffix[1:].lower())
