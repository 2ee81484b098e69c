"""Files are whole or not there, and what killed programs left of them goes.

Mutations that make a test here fail: nothing is removed; what a living program writes is removed,
or what is of another file or machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otafl.core.errors import WriteError
from otafl.core.files import write_text, written

pytestmark = pytest.mark.exact

KILLED = """\
import os, signal, sys
from pathlib import Path
from otafl.core.files import written

with written(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def half_written(path: Path) -> None:
    with written(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "no room")


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_a_killed_program_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert done.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    write_text(tmp_path / "b.txt", "another file")
    assert names(tmp_path) == [left, "b.txt"]
    write_text(path, "whole")
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert path.read_text() == "whole"


def test_what_others_write_at_the_same_time_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with written(path) as mine:
        mine.write_text("mine")
        dead = mine.name.replace(f"-{os.getpid()}.", "-999999999.")
        living = mine.name.replace(f"-{os.getpid()}.", f"-{os.getppid()}.")
        elsewhere = dead.replace(".a.txt.", ".a.txt.elsewhere")
        for name in (dead, living, elsewhere, ".a.txt.tmp"):
            (tmp_path / name).write_text("another's")
    assert set(names(tmp_path)) == {"a.txt", living, elsewhere, ".a.txt.tmp"}


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(WriteError, match="cannot be written: no room"):
        half_written(path)
    assert names(tmp_path) == ["a.txt"]
    assert path.read_text() == "before"
