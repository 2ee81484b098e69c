"""Estimates without pilots, by hand and against a twin written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.csi_bench import DOUBLE, K, Recorded, S, compute_link_budget, draw_normal, make_csi

from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams
from otafl.csi.estimates import Delay, NormalError, PhaseFeedback


@pytest.mark.exact
def test_the_estimate_is_the_channel() -> None:
    h, ones = draw_normal(S, K, 2, 3, 4), torch.ones(S, K)
    channel, streams = Recorded(ChannelState(h, ones)), Streams([0] * S, range(S))
    csi = make_csi("perfect", channel, compute_link_budget(ones, ones), streams)
    assert csi.estimate(h, ones, 5) is h
    assert torch.equal(csi.variance, torch.zeros(S))
    assert csi.num_pilot_symbols == 0


TRIALS, DEVICES = 2, 5


def made(variance: tuple[float, ...] = (0.3, 0.01)) -> NormalError:
    ones = torch.ones(TRIALS, DEVICES, dtype=DOUBLE)
    channel = Recorded(ChannelState(draw_normal(TRIALS, DEVICES, 1, 1, 1), ones))
    streams = Streams([5] * TRIALS, range(TRIALS), dtype=DOUBLE)
    hyper = {"variance": torch.tensor(variance, dtype=DOUBLE)}
    return make_csi("error", channel, compute_link_budget(ones, ones), streams, hyper)


@pytest.mark.twin
def test_a_device_has_its_own_part_of_the_stream() -> None:
    h, one = draw_normal(TRIALS, DEVICES, 2, 3, 4), made()
    got = one.estimate(h, torch.ones(TRIALS, DEVICES), 7)
    for s, k in ((0, 0), (1, 3)):
        pair = torch.tensor([s]), torch.tensor([k])
        draw = one.streams.draw_device_normal("csi_error", 7, *pair, (2, 3, 4, 2))[0].numpy()
        error = (draw[..., 0] + 1j * draw[..., 1]) * np.sqrt((0.3, 0.01)[s] / 2)
        np.testing.assert_allclose(got[s, k].numpy(), h[s, k].numpy() + error, rtol=1e-12)
    assert one.variance.tolist() == [0.3, 0.01]


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


def feedback(*bits: int, dtype: torch.dtype = DOUBLE) -> PhaseFeedback:
    streams = Streams([0] * len(bits), range(len(bits)), dtype=dtype)
    ones = torch.ones(len(bits), 1, dtype=dtype)
    hyper = {"bits": torch.tensor(bits, dtype=dtype)}
    channel = Recorded(ChannelState(ones[:, :, None, None, None].to(dtype.to_complex()), ones))
    return make_csi("phase_feedback", channel, compute_link_budget(ones, ones), streams, hyper)


@pytest.mark.exact
def test_phase_levels() -> None:
    """One bit: 0 and pi. Two: quarters. Three: eighths. The amplitude stays."""
    angles = torch.tensor([0.0, 0.7, 0.8, 1.5, 1.6, 3.0, -0.7, -0.8, -2.4, -3.0], dtype=DOUBLE)
    levels = {
        1: [0, 0, 0, 0, 1, 1, 0, 0, -1, -1],
        2: [0, 0, 1, 1, 1, 2, 0, -1, -2, -2],
        3: [0, 1, 1, 2, 2, 4, -1, -1, -3, -4],
    }
    amplitude = torch.linspace(0.1, 2.0, len(angles), dtype=DOUBLE)
    h = torch.polar(amplitude, angles).expand(3, -1)[:, :, None, None, None].clone()
    got = feedback(1, 2, 3).estimate(h, torch.ones(3, len(angles), dtype=DOUBLE), 0)
    torch.testing.assert_close(got.abs(), h.abs())
    for row, (bits, level) in enumerate(levels.items()):
        turned = amplitude.numpy() * np.exp(2j * np.pi * np.array(level) / 2**bits)
        np.testing.assert_allclose(got[row].flatten().numpy(), turned, atol=1e-12)
