"""The formula sheet of power control by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otafl.validation import sheet


def test_sheet_by_hand() -> None:
    """Two devices of q = 1 and 9 with m = 1, N = 1/2: the first capped, sqrt(eta) = min(1.5 / 1,
    10.5 / 4) = 1.5, error ((1/1.5 - 1)^2 + 0.5/2.25) / 4 = 1/12; full power's is 10.5 / 4."""
    one = np.ones((1, 2))
    states = sheet.States(np.array([[1.0, 3.0j]]), one, one, one, np.array([0.5]), 1, None)
    best = sheet.cao_static_reference(states)
    assert best.eta[0] == pytest.approx(2.25, rel=1e-6)
    assert sheet.compute_error(best, one, states.noise)[0] == pytest.approx(1 / 12, rel=1e-9)
    assert sheet.full_reference(states).eta[0] == pytest.approx((10.5 / 4) ** 2)
    assert sheet.ci_reference(states).eta[0] == pytest.approx(1.0)
