"""Completion in the shell: the words that it offers, and what it imports for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys
from otafl import cli
try: cli.main()
except SystemExit: pass
heavy = {'torch', 'sionna', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules)
print(*heavy, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("otafl new qui", {"quickstart"}),
        ("otafl list po", {"poisson", "power"}),
        ("otafl run --check", {"--checkpoint-every"}),
    ],
)
def test_words_offered(line: str, words: set[str]) -> None:
    """In bash; nothing heavy is imported for it."""
    asked = {
        "_OTAFL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == words
    assert done.stderr == "\n"
