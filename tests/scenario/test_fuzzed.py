"""Malformed scenarios: `check` ends with 0, or with 2 and a sentence, in no traceback."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.malformed import draw_text

from otafl import cli

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("OTAFL_FUZZ", "60"))
"""Scenarios that are made; the same ones each time, and others for another number."""

PHASES = [Phase.generate, *([Phase.shrink] if "OTAFL_FUZZ" in os.environ else [])]
"""One that fails is made small where somebody looks for it."""


@settings(
    max_examples=EXAMPLES,
    phases=PHASES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(text=draw_text())
def test_a_sentence_or_a_result(tmp_path: Path, text: str) -> None:
    file, err = tmp_path / "s.yaml", io.StringIO()
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        cli.main(["check", str(file)])
    code, said = int(left.value.code or 0), err.getvalue()
    assert code == 0 or (code == 2 and said.startswith("otafl: ")), said
