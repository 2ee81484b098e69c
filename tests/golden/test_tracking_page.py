"""docs/tracking.md: its scenario and commands, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command import call
from support.pages import BLOCK, DOCS, read_lines, write_files

pytestmark = pytest.mark.slow

PAGE = DOCS / "tracking.md"


def test_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for line in read_lines(PAGE):
        call(*line.split()[1:])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("trial_1 ")][-1] == "trial_1 ends"
    assert len([line for line in said if re.match(r"trial_0 \d+ [\d.]+$", line)]) == 5
    listed = re.findall(r"^    (results/watched.track/\S+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(map(str, Path().glob("results/watched.track/*/*")))
    (code,) = (
        text for _, text in BLOCK.findall(PAGE.read_text()) if text.startswith("import json")
    )
    exec(compile(code, PAGE.name, "exec"), {})
    assert re.match(r"gbma 0 20 0\.\d+\ngbma 1 20 ", capsys.readouterr().out)
