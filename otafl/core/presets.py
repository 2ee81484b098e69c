"""Presets that a scenario may start from."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def list_presets() -> dict[str, Path]:
    """Return the presets that come with otafl: name -> file."""
    return {file.stem: file for file in sorted((Path(__file__).parents[1] / "presets").iterdir())}


def read_summary(name: str) -> str:
    """Return the first sentence of the comment that a preset opens with."""
    first, _, _ = list_presets()[name].read_text(encoding="utf-8").partition("\n#\n")
    return " ".join(line.removeprefix("# ") for line in first.splitlines())
