"""The first antenna."""

from __future__ import annotations

import pytest
import torch
from support.combiners import draw_channels

from otafl.core.contracts import apply_combiner
from otafl.receivers.scalar import Scalar

pytestmark = pytest.mark.exact


def test_it_hears_the_first_antenna_alone() -> None:
    h = draw_channels()
    f = Scalar().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    assert torch.equal(apply_combiner(f, h), h[..., 0])
