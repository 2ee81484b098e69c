"""Uniform selection against a twin written out."""

from __future__ import annotations

import numpy as np
import pytest
from support.selections import ALL, DOUBLE, FLAT, K, S, make_selection, to_sets

from otafl.core.rng import Streams

pytestmark = pytest.mark.twin


def test_uniform_takes_the_lowest_draws() -> None:
    free = ALL.copy()
    free[0, [1, 3]] = False
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(make_selection("uniform").select_devices(free, 2, round, FLAT))
        for trial in range(S):
            order = sorted(np.nonzero(free[trial])[0], key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])
