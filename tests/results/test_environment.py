"""What a result says of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from otafl.results import origins
from otafl.results.origins import find_commit, get_device_name

pytestmark = pytest.mark.exact


def test_a_gpu_has_the_name_that_its_driver_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert get_device_name("cuda") == "a GPU"
    assert get_device_name("cpu") != "a GPU"


def git(folder: Path, *args: str) -> str:
    options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", *options, *args]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_checkout_has_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mark if the package differs from it, whatever changed elsewhere."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "otafl" / "results").mkdir(parents=True)
    source = tmp_path / "otafl" / "results" / "origins.py"
    source.write_text("x = 1\n")
    monkeypatch.setattr(origins, "__file__", str(source))
    found = []
    for step in ("installed", "commit", "notes", "edit"):
        if step == "commit":
            git(tmp_path, "init", "--quiet")
            git(tmp_path, "add", ".")
            git(tmp_path, "commit", "--quiet", "-m", "all")
        (tmp_path / "notes.txt").write_text(step)
        if step == "edit":
            source.write_text("x = 2\n")
        find_commit.cache_clear()
        found.append(find_commit())
    find_commit.cache_clear()
    made = git(tmp_path, "rev-parse", "HEAD").strip()
    assert found == [None, made, made, f"{made} with changes"]
