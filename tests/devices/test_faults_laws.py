"""Faults by their laws, and that a draw is a device's own. Seeds are fixed; each test states its
sample size and the chance that a right sampler fails it under another seed.

Mutations that make a test here fail: one draw for all devices, trials or rounds; a row's draw at
another's place; the probability of one trial for all, or its complement; shares of the rest of the
slot, or of crashed devices alone taken for all; bursts that are as long on average by another law,
begin within one another, last a round more or less, or depend on who was asked, in which order or
how often; decibels of amplitude, a gain for a loss, only the first block or all devices in a fade;
copies that are 0 or 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.contracts import ChannelState, Cohort
from otafl.core.rng import Streams
from otafl.devices.faults import Faults

S, K, ROUNDS = 2, 50, 200
FALSE_ALARM = 1e-3


def faults(seeds: tuple[int, ...] = (3, 3), **fields: tuple[float, ...]) -> Faults:
    """Of trials 0, 1.., whose fields have these values."""
    size = len(seeds)
    sections = [
        Faults.Settings.model_validate({name: values[s] for name, values in fields.items()})
        for s in range(size)
    ]
    return Faults(sections, Streams(list(seeds), range(size), dtype=torch.float64))


def cohort(trial: list[int], device: list[int]) -> Cohort:
    t, d = torch.tensor(trial), torch.tensor(device)
    counts = tuple(trial.count(s) for s in range(S))
    return Cohort.fresh(t, d, torch.ones(len(t), dtype=torch.float64), counts, K)


EVERYONE = cohort([0] * K + [1] * K, [*range(K), *range(K)])
SOME = cohort([0, 0, 1], [7, 30, 7])


def binomial(hits: int, of: int, probability: float) -> None:
    assert stats.binomtest(hits, of, probability).pvalue > FALSE_ALARM


@pytest.mark.law
@pytest.mark.parametrize("method", ["crashes", "copies"])
def test_how_often(method: str) -> None:
    """10,000 slots of a device in each trial, binomial test, false alarm 1e-3 each."""
    name = {"crashes": "crash_probability", "copies": "duplicate_probability"}[method]
    one = faults(**{name: (0.1, 0.4)})
    drawn = torch.stack([getattr(one, method)(EVERYONE, t) for t in range(ROUNDS)]).numpy()
    assert drawn.shape == (ROUNDS, S, K)
    hit = drawn != 1.0
    for s, p in enumerate((0.1, 0.4)):
        binomial(int(hit[:, s].sum()), ROUNDS * K, p)
    if method == "copies":
        assert set(np.unique(drawn)) == {1.0, 2.0}
    else:
        assert stats.kstest(drawn[hit], "uniform").pvalue > FALSE_ALARM
    # devices, rounds and trials differ: of pairs of draws, p^2 hit both
    both = hit[:, 0, :-1] & hit[:, 0, 1:], hit[:-1, 1] & hit[1:, 1], hit[:, 0] & hit[:, 1]
    for pairs, p in zip(both, (0.01, 0.16, 0.04), strict=True):
        binomial(int(pairs.sum()), pairs.size, p)


@pytest.mark.exact
@pytest.mark.parametrize("method", ["crashes", "copies"])
def test_a_draw_is_the_devices_own(method: str) -> None:
    """Whoever else takes part, stacked or alone; 1 for those who do not."""
    fields = {"crash_probability": (0.5, 0.5), "duplicate_probability": (0.5, 0.5)}
    one = faults(**fields)
    for t in range(8):
        whole, some = (getattr(one, method)(who, t) for who in (EVERYONE, SOME))
        for s, k in ((0, 7), (0, 30), (1, 7)):
            assert some[s, k] == whole[s, k]
        assert (some != 1.0).sum() <= 3
    alone = faults((3,), **dict.fromkeys(fields, (0.5,)))
    own = Cohort.fresh(
        torch.zeros(2, dtype=torch.int64), torch.tensor([7, 30]), torch.ones(2), (2,), K
    )
    assert torch.equal(getattr(alone, method)(own, 5)[0], getattr(one, method)(SOME, 5)[0])


def slow(one: Faults, rounds: int = ROUNDS) -> np.ndarray:
    """[rounds, S, K] factors."""
    trial, device = np.divmod(np.arange(S * K), K)
    drawn = [one.slowdown(trial, device, t) for t in range(rounds)]
    return np.stack([d for d in drawn if d is not None]).reshape(rounds, S, K)


BURSTS: dict[str, Any] = {
    "straggler_probability": (0.02, 0.1),
    "straggler_rounds": (8.0, 3.0),
    "straggler_factor": (4.0, 2.5),
}


@pytest.mark.law
def test_bursts() -> None:
    """Lengths are geometric (chi-squared over 1, 2, 3, 4-6, 7-12 and more rounds of the bursts that
    began early enough to end), bursts begin with probability p, and in the long run p L / (1 + p L)
    of the devices are in one; 400 rounds of 50 devices in each of two trials, false alarm 1e-3
    each."""
    factor = slow(faults(**BURSTS), 400)
    assert factor.dtype == np.float64
    for s in range(S):
        p, mean, times = (BURSTS[name][s] for name in BURSTS)
        assert set(np.unique(factor[:, s])) == {1.0, times}
        state = factor[:, s] > 1.0
        begins = state & ~np.vstack([np.zeros((1, K), bool), state[:-1]])
        binomial(int(begins[1:].sum()), int((~state[:-1]).sum()), p)
        binomial(int(begins[0].sum()), K, p)
        early = np.argwhere(begins[:300])  # 100 rounds are enough to end
        lengths = np.array([np.argmin(state[t:, k]) for t, k in early])
        assert (lengths > 0).all()
        edges = np.array([1, 2, 3, 4, 7, 13, 10**6])
        tail = (1 - 1 / mean) ** (edges - 1.0)
        seen = np.histogram(lengths, edges)[0]
        law = len(lengths) * -np.diff(tail) / (tail[0] - tail[-1])
        assert stats.chisquare(seen, law).pvalue > FALSE_ALARM
        share, expected = state[100:].mean(), p * mean / (1 + p * mean)
        # the mean over T rounds of a two-state chain of correlation r = 1 - p - 1/L
        r = 1 - p - 1 / mean
        spread = np.sqrt(expected * (1 - expected) / (300 * K) * (1 + r) / (1 - r))
        assert abs(share - expected) < stats.norm.isf(FALSE_ALARM / 2) * spread


@pytest.mark.exact
def test_bursts_are_a_function_of_the_round() -> None:
    """Whoever is asked for, in which order, stacked or alone, with rounds left out or again."""
    whole, other = slow(faults(**BURSTS), 40), faults(**BURSTS)
    for t, trial, device in (
        (9, [0], [3]),
        (30, [1, 1], [2, 49]),
        (31, [0, 1], [49, 0]),
        (5, [1], [7]),
        (39, [0, 0, 0], [0, 1, 2]),
        (39, [], []),
    ):
        drawn = other.slowdown(np.array(trial, dtype=int), np.array(device, dtype=int), t)
        assert drawn is not None
        np.testing.assert_array_equal(drawn, whole[t, trial, device])
    alone = faults((3,), **{name: values[:1] for name, values in BURSTS.items()})
    for t in range(40):
        drawn = alone.slowdown(np.zeros(K, dtype=int), np.arange(K), t)
        np.testing.assert_array_equal(drawn, whole[t, 0])


@pytest.mark.exact
def test_a_burst_by_hand() -> None:
    """Draws below p begin one, draws below 1/L end it, in the round that they are of."""
    one, streams = faults(**BURSTS), Streams([3, 3], [0, 1], dtype=torch.float64)
    pair = torch.tensor([1]), torch.tensor([4])
    state, expected = False, []
    for t in range(60):
        u = float(streams.device_uniform("fault/straggler", t, *pair, ())[0])
        state = not u < 1 / 3.0 if state else u < 0.1
        expected.append(2.5 if state else 1.0)
    drawn = [one.slowdown(np.array([1]), np.array([4]), t) for t in range(60)]
    assert np.concatenate(drawn).tolist() == expected  # type: ignore[arg-type]
    assert len(set(expected)) == 2


@pytest.mark.law
def test_deep_fades() -> None:
    """10,000 devices and rounds in each trial, binomial test, false alarm 1e-3; a channel of three
    blocks, two of which come later, is weaker by the same 10 or 30 dB in all of them."""
    one = faults(fade_probability=(0.2, 0.5), fade_db=(10.0, 30.0))
    h = torch.randn(S, K, 2, 3, 4, dtype=torch.complex128, generator=torch.manual_seed(0))
    gain = torch.rand(S, K, dtype=torch.float64)
    channel = ChannelState(h[..., :1, :], gain, 100, lambda blocks: h[..., :blocks, :])
    before, hits = h.clone(), np.zeros((ROUNDS, S, K))
    for t in range(ROUNDS):
        faded = one.fade(channel, t)
        power = (faded.over(250).abs() / h.abs()).square()
        assert torch.equal(faded.h, faded.over(250)[..., :1, :])
        assert faded.gain is gain
        flat = power.flatten(2)
        torch.testing.assert_close(flat, flat[..., :1].expand_as(flat))
        level = torch.tensor([[0.1], [0.001]], dtype=torch.float64).expand(S, K)
        weak = flat[..., 0] < 0.5
        torch.testing.assert_close(flat[..., 0], level.where(weak, 1.0))
        hits[t] = weak.numpy()
    for s, p in enumerate((0.2, 0.5)):
        binomial(int(hits[:, s].sum()), ROUNDS * K, p)
        binomial(int((hits[1:, s] * hits[:-1, s]).sum()), (ROUNDS - 1) * K, p * p)
        binomial(int((hits[:, s, 1:] * hits[:, s, :-1]).sum()), ROUNDS * (K - 1), p * p)
    assert torch.equal(h, before)
    alone = faults((3,), fade_probability=(0.2,), fade_db=(10.0,))
    first = ChannelState(h[:1, :, :, :1], gain[:1])
    assert torch.equal(alone.fade(first, 7).h, one.fade(channel, 7).h[:1])


@pytest.mark.exact
def test_downtime() -> None:
    assert faults(crash_downtime_s=(0.0, 7.5)).downtime_s.tolist() == [0.0, 7.5]
