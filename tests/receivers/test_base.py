"""Facts that all receivers share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.combiners import draw_channels

from otafl import receivers
from otafl.core import registry
from otafl.power.least_error import Full

pytestmark = pytest.mark.exact

ANTENNAS = 4
MADE = {
    name: receivers.build(registry.load_settings_class("receiver", name)(), Full(), ANTENNAS)
    for name in registry.list_names("receiver")
}


@pytest.mark.parametrize("receiver", MADE.values(), ids=MADE)
def test_combiners_have_unit_norm_and_ignore_the_silent(receiver: Any) -> None:
    h, budget = draw_channels(antennas=ANTENNAS), torch.ones(40, 8, dtype=torch.float64)
    sends = torch.ones(40, 8, dtype=torch.bool)
    sends[:, 2] = False
    sends[7] = False  # nobody
    f = receiver.combine(h, sends, budget)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))
    other = h.clone()
    other[:, :, 2] *= 100
    torch.testing.assert_close(receiver.combine(other, sends, budget)[:7], f[:7])
    one = receiver.combine(h[..., :1], sends, budget)
    torch.testing.assert_close(one.abs(), torch.ones_like(one.real))
