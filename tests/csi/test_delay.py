"""The channel of some rounds ago, state by state and under Jakes' spectrum.

Mutations that make a test here fail: a delay of no, one or two rounds too many, no clamping at
round 0, the present blocks in place of the past ones, states looked up again.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats
from support.csi_bench import DOUBLE, LEVEL, K, Recorded, S, known, link_budget, links, of_shape

from otafl.channels.jakes import doppler_hz
from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams
from otafl.csi.delay import Delay


def delayed(rounds: int, *states: ChannelState) -> tuple[Delay, Recorded]:
    channel = Recorded(*states)
    ones = torch.ones(S, K)
    streams = Streams([0] * S, range(S))
    return known("delay", channel, link_budget(ones, ones), streams, rounds=rounds), channel


@pytest.mark.exact
def test_delay() -> None:
    """What is believed in round t is the fading of round t - d, of round 0 before there was one;
    and each state is asked for once."""
    states = [ChannelState(of_shape(S, K, 2, 1, 2, seed=t), torch.ones(S, K)) for t in range(9)]
    csi, channel = delayed(3, *states)
    for t, state in enumerate(states):
        got = csi.estimate(state.h, state.gain, t)
        assert torch.equal(got, states[max(0, t - 3)].h)
    assert sorted(channel.asked) == list(range(9))


@pytest.mark.exact
def test_delay_of_later_blocks() -> None:
    """A payload of 25 channel uses takes three blocks of ten: those of the round before."""
    whole = [of_shape(S, K, 1, 5, 2, seed=t) for t in range(2)]
    states = [
        ChannelState(h[:, :, :, :1], torch.ones(S, K), 10, lambda b, h=h: h[:, :, :, :b])
        for h in whole
    ]
    csi, _ = delayed(1, *states)
    got = csi.estimate(states[1].over(25), torch.ones(S, K), 1)
    assert torch.equal(got, whole[0][:, :, :, :3])


@pytest.mark.law
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_delay_under_jakes(rounds: int) -> None:
    """E[h h_hat^*] = J0(2 pi f_D d T) over 4,000 devices of independent sums of 32 sinusoids, in
    one round: real and imaginary parts within 4.1 standard deviations. The variance of h h_hat^* is
    at most E|h|^2 |h_hat|^2 <= E|h|^4 < 2. The false-alarm level is 1e-4."""
    ones = torch.ones(1, 4000, dtype=DOUBLE)
    moving = {"speed_kmh": 3.0, "carrier_hz": 3.5e9, "round_interval_s": 0.02}
    channel, link, streams = links(ones, ones, **moving)
    csi = known("delay", channel, link, streams, rounds=rounds)
    state = channel.state(7)
    product = (state.h * csi.estimate(state.h, state.gain, 7).conj()).mean()
    expected = special.j0(2 * np.pi * doppler_hz(3.0, 3.5e9) * rounds * 0.02)
    bound = stats.norm.isf(LEVEL / 4) * (2 / 4000) ** 0.5
    assert abs(float(product.real) - expected) < bound
    assert abs(float(product.imag)) < bound
