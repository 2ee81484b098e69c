"""The channel of some rounds ago, state by state and under Jakes' spectrum."""

from __future__ import annotations

import pytest
import torch
from support.csi_bench import (
    K,
    Recorded,
    S,
    compute_link_budget,
    draw_normal,
    make_csi,
)

from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams
from otafl.csi.delay import Delay


def delayed(rounds: int, *states: ChannelState) -> tuple[Delay, Recorded]:
    channel = Recorded(*states)
    ones = torch.ones(S, K)
    streams = Streams([0] * S, range(S))
    return make_csi(
        "delay", channel, compute_link_budget(ones, ones), streams, rounds=rounds
    ), channel


@pytest.mark.exact
def test_delay() -> None:
    """What is believed in round t is the fading of round t - d, before the run at first; each state
    is asked for once, and those of before the run together."""
    states = [ChannelState(draw_normal(S, K, 2, 1, 2, seed=t), torch.ones(S, K)) for t in range(12)]
    csi, channel = delayed(3, *states)  # the last three are rounds -3 to -1
    for t in range(9):
        got = csi.estimate(states[t].h, states[t].gain, t)
        assert torch.equal(got, states[t - 3].h)
    assert channel.asked == list(range(-3, 9))


@pytest.mark.exact
def test_delay_of_later_blocks() -> None:
    """A payload of 25 channel uses takes three blocks of ten: those of the round before."""
    whole = [draw_normal(S, K, 1, 5, 2, seed=t) for t in range(2)]
    states = [
        ChannelState(h[:, :, :, :1], torch.ones(S, K), 10, lambda b, h=h: h[:, :, :, :b])
        for h in whole
    ]
    csi, _ = delayed(1, *states)
    got = csi.estimate(states[1].extend_to(25), torch.ones(S, K), 1)
    assert torch.equal(got, whole[0][:, :, :, :3])
