"""A module of the user's in the working folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otafl.user_code import loading, sources


@contextlib.contextmanager
def write_custom_module(
    name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The working folder, with the module in it, of which nothing is known before nor after."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(loading, "_keys", {})
    (folder / f"{name}.py").write_text(text)
    yield folder
    sys.modules.pop(name, None)
    sources._imported.clear()
