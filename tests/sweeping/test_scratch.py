"""Temporary folders: those of dead programs are removed, all others stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from otafl.sweeping import scratch

pytestmark = pytest.mark.exact


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this test and its programs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def killed_with_a_folder() -> None:
    """A program that dies without being asked, its folder in use."""
    code = """\
import os, signal
from otafl.sweeping import scratch
with scratch.folder() as path:
    (path / "deep").mkdir()
    (path / "deep" / "file").write_text("text")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode < 0


def test_a_folder_is_this_users_and_goes_with_its_use(place: Path) -> None:
    with scratch.folder() as path:
        assert path.parent == place
        assert path.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_the_next_program_removes_what_a_killed_one_left(place: Path) -> None:
    killed_with_a_folder()
    (left,) = place.iterdir()
    with scratch.folder() as path:
        assert list(place.iterdir()) == [path] != [left]


def test_what_is_in_use_or_not_known_to_be_left_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a program that lives, one that is just being made, another user's, a link, a
    file, and a folder of another name."""
    elsewhere, being_made, other = place / "elsewhere", f"{scratch.PREFIX}new", "another-folder"
    for name in (elsewhere, place / being_made, place / other):
        name.mkdir()
    for folder in (elsewhere, place / other):
        (folder / scratch.LOCK).touch()
    (place / f"{scratch.PREFIX}link").symlink_to(elsewhere)
    (place / f"{scratch.PREFIX}file").touch()
    with scratch.folder() as path:
        before = sorted(place.iterdir())
        scratch.remove_left()
        assert sorted(place.iterdir()) == before
        assert path in before
        (place / f"{scratch.PREFIX}dead").mkdir()
        (place / f"{scratch.PREFIX}dead" / scratch.LOCK).touch()
        stranger = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: stranger)
        scratch.remove_left()
        assert (place / f"{scratch.PREFIX}dead").exists()
        monkeypatch.undo()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        scratch.remove_left()
        assert sorted(place.iterdir()) == before
