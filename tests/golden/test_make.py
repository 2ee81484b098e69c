"""The commands for those who work on otafl: targets of the Makefile, and hooks before a commit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.M)


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_lists_every_target() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = dict(re.split(r"\s+", line, maxsplit=1) for line in done.stdout.splitlines())
    assert list(listed) == TARGETS
    assert all(listed.values())


def test_targets_are_no_files() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    assert phony.split() == TARGETS


def test_contributing_names_targets_that_exist() -> None:
    named = re.findall(r"`make ([\w-]+)`", (ROOT / ".github" / "CONTRIBUTING.md").read_text())
    assert named
    assert set(named) <= set(TARGETS)
