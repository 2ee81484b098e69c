"""What `--help` says."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from otafl.cli.commands import app

pytestmark = pytest.mark.exact


def test_help_has_plain_brackets() -> None:
    for command in get_command(app).commands:  # type: ignore[attr-defined]
        said = CliRunner().invoke(app, [command, "--help"], prog_name="otafl").output
        assert said.startswith(f"Usage: otafl {command}")
        assert "\\[" not in said
