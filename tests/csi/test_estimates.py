"""Channel estimates against twins written out and numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.core.rng import Streams
from otafl.csi.base import Csi
from otafl.csi.estimates import Delay, NormalError, PhaseFeedback, Pilots

S, K = 2, 3

DOUBLE = torch.float64

LEVEL = 1e-4


class Recorded:
    """A channel of given states, which says which were asked for."""

    correlation_rounds = 1
    num_sounded_paths = 0

    def __init__(self, *states: ChannelState) -> None:
        self.states = states
        self.asked: list[int] = []

    def get_state(self, round: int) -> ChannelState:
        self.asked.append(round)
        return self.states[round]

    def get_large_scale_state(self, round: int) -> ChannelState:
        return self.states[round]


def compute_link_budget(budget: Tensor, gain: Tensor) -> LinkBudget:
    ones = torch.ones(len(budget), dtype=budget.dtype)
    return LinkBudget(budget, gain, ones, ones, ones.bool())


def draw_normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def make_csi(
    name: str, channel: Any, link: LinkBudget, streams: Streams, hyper: Any = None, **fields: Any
) -> Any:
    """What is known of a channel by these settings; hyper: stackable fields, [S]."""
    section = registry.load_settings_class("csi", name)(**fields)
    made: Csi = registry.make_component("csi", section, channel, link, streams, hyper or {})
    return made


def make_links(budget: Tensor, gain: Tensor, **fields: Any) -> tuple[Channel, LinkBudget, Streams]:
    """Rayleigh fading of devices of these budgets and gains, [S, K] each."""
    streams = Streams([3] * len(budget), range(len(budget)), dtype=DOUBLE)
    section = registry.load_settings_class("channel", "rayleigh")(**fields)
    link = compute_link_budget(budget, gain)
    made: Channel = registry.make_component("channel", section, link, budget.shape[1], streams, {})
    return made, link, streams


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


BUDGET = torch.tensor([[4.0, 1.0, 9.0], [100.0, 25.0, 2.0]], dtype=DOUBLE)

GAIN = torch.tensor([[1.0, 0.5, 0.1], [1e-2, 3.0, 2.0]], dtype=DOUBLE)


def pilots(
    h: Tensor,
    budget: Tensor = BUDGET,
    gain: Tensor = GAIN,
    power_db: float = 0.0,
    state_gain: Tensor | None = None,
    trials: tuple[int, ...] = (0, 1),
    **config: Any,
) -> Pilots:
    channel = Recorded(ChannelState(h, gain if state_gain is None else state_gain))
    streams = Streams([5] * len(trials), trials, dtype=budget.dtype)
    hyper = {"power_db": torch.full((len(trials),), power_db, dtype=budget.dtype)}
    return make_csi("pilots", channel, compute_link_budget(budget, gain), streams, hyper, **config)


@pytest.mark.exact
@pytest.mark.twin
@pytest.mark.parametrize("estimator", ["ls", "mmse"])
def test_pilots_twin(estimator: str) -> None:
    """h_ls = h + e / sqrt(L P beta), e ~ CN(0, 1) of each device's own; MMSE shrinks it by
    1 + 1 / (L P beta). P is twice the budget."""
    h = draw_normal(S, K, 2, 3, 4)
    csi = pilots(h, estimator=estimator, length=5, power_db=10 * math.log10(2))
    got = csi.estimate(h, GAIN, 7)
    streams = Streams([5, 5], [0, 1], dtype=DOUBLE)
    for s in range(S):
        for k in range(K):
            pair = torch.tensor([s]), torch.tensor([k])
            draw = streams.draw_device_normal("csi_pilots", 7, *pair, (2, 3, 4, 2))[0].numpy()
            energy = 5 * 2 * float(BUDGET[s, k] * GAIN[s, k])
            error = (draw[..., 0] + 1j * draw[..., 1]) / np.sqrt(2 * energy)
            expected = h[s, k].numpy() + error
            if estimator == "mmse":
                expected = expected / (1 + 1 / energy)
            np.testing.assert_allclose(got[s, k].numpy(), expected, rtol=1e-12)
    assert csi.num_pilot_symbols == 5 * 4


@pytest.mark.exact
def test_a_variance_is_claimed_where_it_is_one_and_independent_of_h() -> None:
    flat = draw_normal(S, K, 1, 1, 1)
    even = torch.tensor([[8.0] * K, [2.0] * K], dtype=DOUBLE)
    ones = torch.ones_like(even)
    csi = pilots(flat, even, ones, length=4)
    assert csi.variance is not None
    torch.testing.assert_close(csi.variance, torch.tensor([1 / 32, 1 / 8], dtype=DOUBLE))
    assert pilots(flat, BUDGET, ones).variance is None
    assert pilots(flat, even, GAIN).variance is None
    assert pilots(flat, even, ones, state_gain=2 * ones).variance is None
    assert pilots(flat, even, ones, estimator="mmse").variance is None


def build_sionna_estimator(groups: int, kind: str) -> Any:
    """Sionna's estimator (ls or mmse) with a pilot of value 1 on each of so many sub-carriers."""
    with torch.random.fork_rng():
        from sionna.phy.ofdm import (
            LMMSEChannelEstimator,
            LSChannelEstimator,
            PilotPattern,
            ResourceGrid,
        )

    where = {"precision": "double", "device": "cpu"}
    mask = torch.ones(1, 1, 1, groups, dtype=torch.bool)
    pattern = PilotPattern(mask, torch.ones(1, 1, groups, dtype=torch.complex128), **where)
    grid = ResourceGrid(1, groups, subcarrier_spacing=1.0, pilot_pattern=pattern, **where)
    if kind == "mmse":  # of independent sub-carriers
        eye = torch.eye(groups, dtype=torch.complex128)
        return LMMSEChannelEstimator(grid, eye[:1, :1], eye, **where)
    return LSChannelEstimator(grid, interpolation_type="lin", **where)


@pytest.mark.exact
@pytest.mark.twin
@pytest.mark.parametrize("kind", ["ls", "mmse"])
def test_sionna_estimators(kind: str) -> None:
    """Sionna's LSChannelEstimator and LMMSEChannelEstimator on a grid with pilots on every cell
    state the error variance that ours has at L = 1: v = N0 / |p|^2, and v / (1 + v). Both
    estimates' mean squared errors over 48,000 cells are within 4.1 standard deviations of it: |e|^2
    is exponential, of relative variance 1."""
    cells, groups, power = 6000, 8, 5.0
    law = 1 / power if kind == "ls" else 1 / (1 + power)
    budget = torch.full((1, cells), power, dtype=DOUBLE)
    channel, link, streams = make_links(budget, torch.ones_like(budget))
    hyper = {"power_db": torch.zeros(1, dtype=DOUBLE)}
    csi = make_csi("pilots", channel, link, streams, hyper, estimator=kind)
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(1, cells, 1, 1, groups, dtype=torch.complex128, generator=generator)
    noise = torch.randn(cells, 1, 1, 1, groups, dtype=torch.complex128, generator=generator)
    y = h.view(cells, 1, 1, 1, groups) + noise / power**0.5
    noise_level = torch.tensor(1 / power, dtype=DOUBLE)
    h_sionna, stated = build_sionna_estimator(groups, kind)(y, noise_level)
    torch.testing.assert_close(stated, torch.full_like(stated, law))
    bound = stats.norm.isf(LEVEL / 4) / (cells * groups) ** 0.5
    for estimate in (h_sionna.view_as(h), csi.estimate(h, link.gain, 0)):
        error = float((estimate - h).abs().square().mean()) / law
        assert abs(error - 1) < bound
    if kind == "ls":
        ours = csi.error_variance(link.gain)
        torch.testing.assert_close(ours, torch.full_like(ours, law))
