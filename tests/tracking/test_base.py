"""What a tracker is told of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otafl.core.errors import UserError
from otafl.tracking.trackers import MAX_LETTERS, Run

pytestmark = pytest.mark.exact

RUN = Run(Path("out"), 3, {"snr_db": 10, "power": "tci(threshold=0.2)/x"}, 1, {}, "hash")


def test_names_are_names_of_files() -> None:
    assert RUN.name == "3_snr_db=10_power=tci_threshold=0.2_x/trial_1"
    assert replace(RUN, coords={}).name == "trial_1"
    long = replace(RUN, coords={"power": "x" * 500})
    assert len(long.group) == MAX_LETTERS


def test_files_of_runs_replace_links_and_do_not_follow_them(tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("climate")
    run = replace(RUN, folder=tmp_path / "track")
    run.folder.mkdir()
    (run.folder / "soft.jsonl").symlink_to(victim)
    (run.folder / "hard.jsonl").hardlink_to(victim)
    for name in ("soft.jsonl", "hard.jsonl", "group/new.jsonl"):
        run.create_file(run.folder / name)
        (run.folder / name).write_text("line")
    assert victim.read_text() == "climate"
    (run.folder / "point").symlink_to(tmp_path)
    with pytest.raises(UserError, match=r"track/point: .*a link"):
        run.create_file(run.folder / "point" / "victim.txt")
