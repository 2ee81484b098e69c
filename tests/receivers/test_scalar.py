"""The first antenna."""

from __future__ import annotations

import pytest
import torch
from support.combiners import channels

from otafl.core.contracts import combined
from otafl.receivers.scalar import Scalar

pytestmark = pytest.mark.exact


def test_it_hears_the_first_antenna_alone() -> None:
    h = channels()
    f = Scalar().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    assert torch.equal(combined(f, h), h[..., 0])
