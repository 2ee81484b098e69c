"""The sum of channels."""

from __future__ import annotations

import pytest
import torch
from support.combiners import draw_channels

from otafl.receivers.mrc import Mrc

pytestmark = pytest.mark.exact


def test_mrc_sums_the_channels() -> None:
    h = draw_channels()
    f = Mrc().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    total = h.sum(2)
    torch.testing.assert_close(f, total / total.norm(dim=-1, keepdim=True))
