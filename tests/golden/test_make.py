"""The commands for those who work on otafl: targets of the Makefile, and hooks before a commit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([\w-]+):(?!=)", MAKEFILE, re.M)
HOOKS = {
    hook["id"]: hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    if repository["repo"] == "local"  # the others would be downloaded
    for hook in repository["hooks"]
}


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


def test_hooks_download_nothing() -> None:
    configured = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repository["repo"] for repository in configured["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS.values()} <= {"system", "pygrep", "fail"}


def test_a_hook_runs_what_make_lint_runs() -> None:
    assert HOOKS["lint"]["entry"] == "make lint"


@pytest.mark.parametrize(
    ("hook", "bad", "good"),
    [
        ("conflict-markers", "<" * 7 + " HEAD\n", "x < y\n"),
        ("conflict-markers", "=" * 7 + "\n", "=" * 9 + "\n"),
        ("trailing-whitespace", "x = 1 \n", "x = 1\n"),
        ("end-of-file", "x = 1", "x = 1\n"),
        ("private-keys", "-----BEGIN RSA PRIVATE" + " KEY-----\n", "a private key\n"),
    ],
)
def test_patterns_of_hooks(hook: str, bad: str, good: str) -> None:
    """As pre-commit's pygrep looks for them: in lines, or in a whole file."""
    whole = "--multiline" in HOOKS[hook].get("args", ())
    pattern = re.compile(HOOKS[hook]["entry"], re.MULTILINE if whole else 0)
    for text, found in ((bad, True), (good, False)):
        places = [text] if whole else text.splitlines()
        assert any(pattern.search(place) for place in places) == found


def test_leftovers() -> None:
    pattern = re.compile(HOOKS["leftovers"]["files"])
    assert all(map(pattern.search, ("a.py.orig", "otafl/a.rej", "a/b.pyc", "a.py~")))
    assert not any(map(pattern.search, ("a.py", "docs/origin.md", ".gitignore")))
