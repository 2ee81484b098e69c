"""What a tracker is told of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otafl.tracking.base import MAX_LETTERS, Run

pytestmark = pytest.mark.exact

RUN = Run(Path("out"), 3, {"snr_db": 10, "power": "tci(threshold=0.2)/x"}, 1, {}, "hash")


def test_names_are_names_of_files() -> None:
    assert RUN.name == "3_snr_db=10_power=tci_threshold=0.2_x/trial_1"
    assert replace(RUN, coords={}).name == "trial_1"
    long = replace(RUN, coords={"power": "x" * 500})
    assert len(long.group) == MAX_LETTERS


def test_a_run_has_its_own_id_each_time() -> None:
    assert RUN.id == replace(RUN).id
    others = [
        replace(RUN, trial=2),
        replace(RUN, point=4),
        replace(RUN, folder=Path("elsewhere")),
        replace(RUN, scenario_hash="other"),
    ]
    assert len({RUN.id, *(one.id for one in others)}) == 5
    assert RUN.id.isalnum()
