"""What a conversion may change of a model's scores."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.exporting.measure import Scored, find_difference

pytestmark = pytest.mark.exact

SCORES = np.eye(3)


def test_scores_differ_by_rounding_only() -> None:
    before = Scored(SCORES, 1.0)
    assert find_difference(before, Scored(SCORES + 1e-5, 1.0)) is None
    assert "scores differ by 0.1, of at most 1" in str(
        find_difference(before, Scored(SCORES + 0.1, 1.0))
    )
