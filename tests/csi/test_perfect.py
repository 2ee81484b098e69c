"""A channel that is known."""

from __future__ import annotations

import pytest
import torch
from support.csi_bench import K, Recorded, S, compute_link_budget, draw_normal, make_csi

from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact


def test_the_estimate_is_the_channel() -> None:
    h, ones = draw_normal(S, K, 2, 3, 4), torch.ones(S, K)
    channel, streams = Recorded(ChannelState(h, ones)), Streams([0] * S, range(S))
    csi = make_csi("perfect", channel, compute_link_budget(ones, ones), streams)
    assert csi.estimate(h, ones, 5) is h
    assert torch.equal(csi.variance, torch.zeros(S))
    assert csi.num_pilot_symbols == 0
