"""What the scripts share that print a page's tables: opening a result, and rows of Markdown."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

import otafl


def opened(results: Path, name: str) -> xr.Dataset:
    """The result of a scenario: the folder that `otafl sweep` wrote, or a single file."""
    folder = results / name
    return otafl.open_results(folder if folder.is_dir() else results / f"{name}.nc")


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def head(title: str, *columns: str) -> None:
    print(f"\n{title}\n")
    row(*columns)
    print("|" + "---|" * len(columns))
