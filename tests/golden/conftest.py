"""What several tests of the command line begin with."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import SMALL, SWEEP


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario of a few rounds, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path
