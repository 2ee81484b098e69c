"""What a conversion may change of a model's scores."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.exporting.measure import Scored, find_fault

pytestmark = pytest.mark.exact

SCORES = np.eye(3)


def test_a_quantised_model_may_lose_little() -> None:
    """A gain is none, and scores may be any."""
    found = [
        find_fault(Scored(SCORES, 0.8), Scored(2 * SCORES, 0.8 + change), quantised=True)
        for change in (-0.02, -0.005, 0.1)
    ]
    assert found == ["the accuracy fell from 0.8000 to 0.7800", None, None]


def test_others_keep_their_scores() -> None:
    before = Scored(SCORES, 1.0)
    assert find_fault(before, Scored(SCORES + 1e-9, 1.0), quantised=False) is None
    assert "scores differ by 0.1" in str(
        find_fault(before, Scored(SCORES + 0.1, 1.0), quantised=False)
    )
    assert (
        find_fault(before, Scored(SCORES, 0.5), quantised=False)
        == "the accuracy is 0.500000, not 1.000000"
    )
