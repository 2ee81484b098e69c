"""The channel of some rounds ago, state by state and under Jakes' spectrum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from support.csi_bench import (
    DOUBLE,
    LEVEL,
    K,
    Recorded,
    S,
    compute_link_budget,
    draw_normal,
    make_csi,
    make_links,
)
from support.made_channels import make_channel

from otafl.channels.jakes import doppler_hz
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


@pytest.mark.law
@pytest.mark.parametrize("round", [0, 1, 7])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_delay_under_jakes(rounds: int, round: int) -> None:
    """E[h h_hat^*] = J0(2 pi f_D d T) over 4,000 devices of independent sums of 32 sinusoids, in
    the first round as in any: real and imaginary parts within 4.1 standard deviations. The variance
    of h h_hat^* is at most E|h|^2 |h_hat|^2 <= E|h|^4 < 2. The false-alarm level is 1e-4."""
    ones = torch.ones(1, 4000, dtype=DOUBLE)
    moving = {"speed_kmh": 3.0, "carrier_hz": 3.5e9, "round_interval_s": 0.02}
    channel, link, streams = make_links(ones, ones, **moving)
    csi = make_csi("delay", channel, link, streams, rounds=rounds)
    state = channel.get_state(round)
    product = (state.h * csi.estimate(state.h, state.gain, round).conj()).mean()
    expected = special.j0(2 * np.pi * doppler_hz(3.0, 3.5e9) * rounds * 0.02)
    bound = stats.norm.isf(LEVEL / 4) * (2 / 4000) ** 0.5
    assert abs(float(product.real) - expected) < bound
    assert abs(float(product.imag)) < bound


@pytest.mark.law
@pytest.mark.parametrize("name", ["rayleigh", "tdl-a", "umi"])
def test_fading_anew_in_each_round_is_not_known_in_the_first(name: str) -> None:
    """Without a speed, E[h h_hat^*] / E|h|^2 is 0 over 2,000 devices in round 0: within 4.3 of the
    largest standard deviation, sqrt(2 / 2000). The false-alarm level is 1e-4."""
    channel = make_channel(name, 2000, (0,))
    csi = make_csi("delay", channel, channel.budget, channel.streams)
    state = channel.get_state(0)
    product = state.h * csi.estimate(state.h, state.gain, 0).conj()
    power = float(state.h.abs().square().mean())
    mean = complex(product[:, :, :, :, 0].mean()) / power
    assert abs(mean) < math.sqrt(-math.log(LEVEL) * 2 / 2000)


@pytest.mark.exact
def test_a_channel_that_stands_still_is_known_in_the_first_round() -> None:
    channel = make_channel("rayleigh", 5, (0,), speed_kmh=0.0)
    csi = make_csi("delay", channel, channel.budget, channel.streams, rounds=4)
    state = channel.get_state(0)
    torch.testing.assert_close(csi.estimate(state.h, state.gain, 0), state.h)
