"""The study at equal channel uses: settings tuned without attackers, and tables of its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from otafl.results.end_values import count_diverged, select_at_end
from studies.common.tables import open_result
from studies.robust import robust_equal_uses as study

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "studies"
ROUNDS, COORDINATES = 600, 650
"""Of one sum."""


@pytest.mark.slow
def test_settings_are_the_best_without_attackers_and_ends_of_grids_are_marked() -> None:
    result = open_result(STUDIES, study.STUDY)
    tunings = [
        count_diverged(open_result(STUDIES, f"{study.STUDY}_{end}")) for end in study.TUNINGS
    ]
    best, entries = study.choose(tunings), study.list_entries(result)
    places = study.list_places(result)
    assert result.attrs["complete"] == 1
    assert len(places) == result.sizes["zip"]
    for key, at in places.items():
        assert best[key].entry == entries[at]
        assert best[key].learning_rate == float(result["learning_rate"][at])
    ends = [key for key in places if not best[key].is_interior]
    assert len(ends) <= 1
    assert (STUDIES / "robust" / "README.md").read_text().count("(end of the grid)") == len(ends)
    uses = select_at_end(result, "uplink_symbols").mean(("trial", "attack", "byzantine"))
    uses = uses.isel(zip=list(places.values()))
    assert float(uses.max()) <= 1.001 * ROUNDS * COORDINATES
    assert float(uses.min()) >= 0.98 * ROUNDS * COORDINATES
