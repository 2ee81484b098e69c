"""Files are whole or not there, and what killed programs left of them goes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from otafl.core import files
from otafl.core.errors import UserError, WriteError
from otafl.core.files import refuse_links, remove_own, write_atomically, write_text

pytestmark = pytest.mark.exact


def half_written(path: Path) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "no room")


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_a_killed_program_left_is_removed_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    left, other = files.create_beside(path), files.create_beside(tmp_path / "b.txt")
    write_text(path, "whole")
    assert left.exists()
    old = path.stat().st_mtime - files.STALE_AFTER_S - 1
    for one in (left, other):
        os.utime(one, (old, old))
    write_text(path, "whole")
    assert names(tmp_path) == sorted([other.name, "a.txt"])


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(WriteError, match="cannot be written: no room"):
        half_written(path)
    assert names(tmp_path) == ["a.txt"]
    assert path.read_text() == "before"


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.txt"
    victim.write_text("precious")
    tokens = iter(2 * ["0123456789abcdef"] + ["fedcba9876543210"])
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: next(tokens))
    with write_atomically(path) as right:
        right.write_text("first")
    (tmp_path / right.name).symlink_to(victim)
    write_text(path, "text")
    assert victim.read_text() == "precious"
    assert path.read_text() == "text"
    assert next(tokens, None) is None


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text()), daemon=True)
    reader.start()
    write_text(path, "text")
    reader.join(10)
    assert read == ["text"]
    assert path.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_what_the_system_names_for_an_open_file_is_not_replaced(tmp_path: Path) -> None:
    """As of `--csv /dev/stdout`, where the output goes to a file."""
    with (tmp_path / "out.txt").open("w+") as file:
        write_text(Path(f"/proc/self/fd/{file.fileno()}"), "text")
        assert file.read() == "text"
    assert names(tmp_path) == ["out.txt"]


STACK = "0123456789abcdef"
OWN = (
    f"{STACK}.nc",
    f"{STACK}.nc.damaged",
    f"{STACK}.nc.sha256",
    f"{STACK}.pt",
    f"{STACK}.txt",
    f"{STACK}.lock",
    "sweep.json",
    "sweep.json.sha256",
    "sizes.json",
    "trial_0.jsonl",
    f".{STACK}.nc.0123456789abcdef.tmp",
)
FOREIGN = ("important.nc", "2024.nc", "notes.txt", "pretrained.pt", "my-sweep.json", ".hidden.tmp")


@pytest.mark.parametrize("foreign", [(), FOREIGN])
def test_only_own_files_are_removed(foreign: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "s"
    for place in (folder, folder / "parts"):
        place.mkdir()
        for name in (*OWN, *foreign):
            (place / name).write_text("text")
    remove_own(folder)
    assert folder.exists() == bool(foreign)
    if foreign:
        assert names(folder) == sorted([*foreign, "parts"])
        assert names(folder / "parts") == sorted(foreign)


def test_removal_follows_no_link(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "s"
    victim.mkdir()
    folder.mkdir()
    (victim / f"{STACK}.nc").write_text("climate")
    (folder / "parts").symlink_to(victim)
    (folder / f"{STACK}.nc").symlink_to(victim / f"{STACK}.nc")
    remove_own(folder)
    assert names(folder) == ["parts"]
    remove_own(folder / "parts")
    assert (victim / f"{STACK}.nc").read_text() == "climate"
    with pytest.raises(UserError, match=f"s/parts: .*a link to {victim}; remove the link"):
        refuse_links(folder, folder / "parts")
