"""Levels by memory, against hand-worked tables."""

from __future__ import annotations

import numpy as np
import pytest
from support.assignments import K, assign, make_cohort, make_levels

from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


def test_memory_holds_parameters_gradients_momentum_and_a_minibatch() -> None:
    need = [(3 * size + 5 * 10) * 8 / 2**20 for size in (400, 200, 100)]
    fits = make_levels("memory", memory_mb=(need[1], need[0], need[0] * 0.999, need[2]))
    assert assign(fits, make_cohort()) == [1, 1, 0, 0, 1, 1, 2, 2]
    with pytest.raises(
        UserError, match=r"devices.capacity_levels.memory_mb: got .* smallest model takes"
    ):
        make_levels("memory", memory_mb=(need[2] * 0.999,))


def test_without_classes_the_memory_is_the_hardwares() -> None:
    need = np.array([(3 * size + 5 * 10) * 8 / 2**20 for size in (400, 200, 100)])
    own = [[np.inf, need[0], need[0] * 0.999, need[1], need[1] * 0.999, need[2], 1, 1], [1.0] * K]
    held = make_levels("memory", trials=2, memory=own)
    assert assign(held, make_cohort(list(range(K)), [0])) == [0, 0, 1, 1, 2, 2, 0, 0, 0]
    with pytest.raises(UserError, match=r"devices.compute.memory_mb: a device has .* smallest"):
        make_levels("memory", memory=[*own[0][:7], need[2] * 0.999])
