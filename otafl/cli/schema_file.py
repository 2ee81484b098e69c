"""JSON schema in the user's cache folder, and the line by which editors find it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from otafl.core.files import write_text

EDITOR_LINE = "# yaml-language-server: $schema="
"""Start of the comment by which editors find the JSON schema of a file."""


def format_editor_line() -> str:
    """Write the comment with the path of the schema, which `write_missing_schema` writes."""
    return f"{EDITOR_LINE}{_locate_schema()}\n"


def write_missing_schema(scenario: Path) -> None:
    """Write the schema that a scenario's first line names, if it is otafl's and does not exist.

    It takes a few seconds, because all components are imported.
    """
    file = _locate_schema()
    with contextlib.suppress(OSError):
        with scenario.open(encoding="utf-8") as opened:
            line = opened.readline(1_000)
        if line.rstrip("\n") == f"{EDITOR_LINE}{file}" and not file.exists():
            from otafl.scenario import build_json_schema

            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(build_json_schema()))


def _locate_schema() -> Path:
    """Return the file of the JSON schema, whose name changes with the installed source."""
    import pooch

    from otafl.user_code.sources import hash_otafl

    return Path(pooch.os_cache("otafl")) / f"schema-{hash_otafl()}.json"
