"""LEAF's draws of users and of their test samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otafl.core.errors import UserError
from otafl.data.leaf import draw_users

pytestmark = pytest.mark.exact


def test_users_are_drawn_until_they_have_enough() -> None:
    sizes = np.random.default_rng(3).integers(1, 60, 500)
    for fraction in (0.05, 0.4, 1.0):
        drawn = draw_users(sizes, fraction, 1, np.random.default_rng(1))
        held = sizes[drawn].sum()
        assert fraction * sizes.sum() - 0.5 <= held < fraction * sizes.sum() + 60
        assert (np.diff(drawn) > 0).all()
    assert_array_equal(draw_users([5, 1, 9], 1.0, 2, np.random.default_rng(0)), [0, 2])
    with pytest.raises(UserError, match="none of the 3 drawn users has 10 samples"):
        draw_users([5, 1, 9], 1.0, 10, np.random.default_rng(0))
