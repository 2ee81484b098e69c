"""Presets that a scenario may start from."""

from __future__ import annotations

import functools
import re
from pathlib import Path


@functools.cache
def list_presets() -> dict[str, Path]:
    """Return the presets that come with otafl: name -> file."""
    return {file.stem: file for file in sorted((Path(__file__).parents[1] / "presets").iterdir())}


def read_summary(file: Path) -> str:
    """Return the first sentence of the comment that a scenario or preset opens with."""
    comment, _, _ = file.read_text(encoding="utf-8").partition("\n#\n")
    text = " ".join(line.removeprefix("# ") for line in comment.splitlines())
    return re.split(r"(?<=[.?])(?<!Fig\.)(?<!Figs\.) ", text)[0]
