"""How many files of otafl a call enters."""

from __future__ import annotations

import runpy
from pathlib import Path

import otafl
from otafl.core.suggestions import find_closest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "files_entered.py"))


def test_files_and_changes_of_file() -> None:
    trace = SCRIPT["Trace"]()
    assert trace.record(lambda: find_closest("gmba", ["gbma", "ci"])) == "gbma"
    assert trace.files[0] == "core/suggestions.py"
    trace.calls = ["a.py", "a.py", "b.py", "a.py"]
    assert trace.files == ["a.py", "b.py"]
    assert trace.num_changes == 2
    assert SCRIPT["PACKAGE"] == str(Path(otafl.__file__).parent)
