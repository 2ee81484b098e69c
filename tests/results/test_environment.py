"""What a result says of the machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from otafl.results import origins
from otafl.results.origins import find_commit, get_device_name

pytestmark = pytest.mark.exact

PROJECT = '[project]\nname = "otafl"\n'


def test_a_gpu_has_the_name_that_its_driver_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert get_device_name("cuda") == "a GPU"
    assert get_device_name("cpu") != "a GPU"


def git(folder: Path, *args: str) -> str:
    of_nobody = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", *of_nobody, *args]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package otafl, from which this program seems to run."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "a checkout"
    (folder / "otafl" / "results").mkdir(parents=True)
    for name in ("otafl/results/origins.py", "otafl/core.py"):
        (folder / name).write_text("x = 1\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    git_dir = str(folder / ".git")
    git(tmp_path, "--git-dir", git_dir, "--work-tree", str(folder), "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", git_dir)
    monkeypatch.setattr(origins, "__file__", str(folder / "otafl/results/origins.py"))
    find_commit.cache_clear()
    yield folder
    find_commit.cache_clear()


def commit(folder: Path) -> str:
    work_tree = ("--work-tree", str(folder))
    git(folder, *work_tree, "add", ".")
    git(folder, *work_tree, "commit", "--quiet", "-m", "all")
    return git(folder, "rev-parse", "HEAD").strip()


def test_a_checkout_has_a_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mark if the package differs from it, whatever changed elsewhere, and for GIT_DIR."""
    assert find_commit() is None  # before the first commit
    find_commit.cache_clear()
    made = commit(checkout)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    (checkout / "notes.txt").write_text("not of the package\n")
    assert find_commit() == made
    find_commit.cache_clear()
    (checkout / "otafl" / "core.py").write_text("x = 2\n")
    assert find_commit() == f"{made} with changes"


@pytest.mark.parametrize("missing", ["git", "project", "repository"])
def test_elsewhere_there_is_no_commit(
    missing: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git, for a package in another project's repository, and for an installed one."""
    commit(checkout)
    if missing == "git":
        monkeypatch.setenv("PATH", str(checkout))
    elif missing == "project":
        (checkout / "pyproject.toml").write_text(PROJECT.replace("otafl", "mine"))
    else:
        shutil.move(checkout / ".git", checkout / "git")
    assert find_commit() is None
