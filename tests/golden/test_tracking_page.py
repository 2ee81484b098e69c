"""docs/tracking.md: its scenario and commands, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otafl.cli import main

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of the page's blocks into the working folder."""
    for language, text in BLOCK.findall(PAGE.read_text()):
        first = text.partition("\n")[0]
        if language != "sh" and first.startswith("# "):
            (tmp_path / first.removeprefix("# ")).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page(tmp_path, monkeypatch)
    blocks = BLOCK.findall(PAGE.read_text())
    for line in "".join(text for language, text in blocks if language == "sh").splitlines():
        with pytest.raises(SystemExit) as left:
            main(line.split()[1:])
        assert not left.value.code
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("trial_1 ")][-1] == "trial_1 ends"
    assert len([line for line in said if re.match(r"trial_0 \d+ [\d.]+$", line)]) == 5
    listed = re.findall(r"^    (results/watched.track/\S+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(map(str, Path().glob("results/watched.track/*/*")))
    (code,) = (text for language, text in blocks if text.startswith("import json"))
    exec(compile(code, PAGE.name, "exec"), {})
    assert re.match(r"gbma 0 20 0\.\d+\ngbma 1 20 ", capsys.readouterr().out)
