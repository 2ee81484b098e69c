"""Distortion of products of randomly coded factors."""

from __future__ import annotations

import pytest
import torch

from otafl.factorised.random_linear_coding import compute_distortion

pytestmark = pytest.mark.exact


def test_one_device_of_rank_one_has_only_its_gain_s_distortion() -> None:
    """A nuclear norm of 3 at unit gains, and at gains with E a^4 = 2."""
    nuclear, square, one = torch.tensor([[3.0]]), torch.tensor([9.0]), torch.ones(1, 1)
    for fourth, expected in ((1.0, 0.0), (2.0, 9.0)):
        found = compute_distortion(nuclear, square[:, None], square, one, 1, fourth)
        assert found.tolist() == [expected]
