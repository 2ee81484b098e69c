"""Laws of device selection and of the noisy downlink. Seeds are fixed; every test's false-alarm
level over all that it compares is 1e-4.

Mutations that make a test here fail: the worst channels in place of the best, the rate in place of
its ratio to what a device has had, a threshold on the amplitude; noise of a complex symbol in place
of a real's, no fading, twice its power, shrinkage to 1 - s, the model's mean power forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from otafl.channels.config import PerfectCsiConfig, RayleighConfig
from otafl.channels.rayleigh import Rayleigh
from otafl.core import registry
from otafl.core.contracts import Broadcast, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.csi.csi import PerfectCsi
from otafl.downlink.downlink import AnalogDownlink, DownlinkSetup
from otafl.selection.choosing import SelectionSetup
from otafl.transport.config import AnalogDownlinkConfig

LEVEL = 1e-4
DOUBLE = torch.float64
TRIALS, ROUNDS = 20, 400


def chosen(
    name: str, wanted: int, gain: Tensor, **hyper: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who is chosen [rounds, S, K] under Rayleigh fading of mean gains [K] and budget 1, and the
    power gains."""
    gain = gain.to(DOUBLE).expand(TRIALS, -1)
    ones = torch.ones(TRIALS, dtype=DOUBLE)
    link = LinkBudget(torch.ones_like(gain), gain, ones, ones, ones.bool())
    streams = Streams([9] * TRIALS, range(TRIALS), dtype=DOUBLE)
    channel = Rayleigh(RayleighConfig(), link, gain.shape[1], streams)
    csi = PerfectCsi(PerfectCsiConfig(), channel, link, streams, {})
    settings = {key: torch.full((TRIALS,), value, dtype=DOUBLE) for key, value in hyper.items()}
    setup = SelectionSetup(csi, link, streams, settings)
    made: Any = registry.component("selection", name)(
        registry.settings("selection", name)(), setup
    )
    free = np.ones(gain.shape, bool)
    states = [channel.state(t) for t in range(ROUNDS)]
    who = np.stack([made.choose(free, wanted, t, state) for t, state in enumerate(states)])
    power = torch.stack([s.gain * s.h[..., 0, 0, 0].abs().square() for s in states]).numpy()
    return who, power, gain.numpy()


@pytest.mark.parametrize(("wanted", "devices"), [(1, 2), (1, 10), (3, 10)])
def test_best_of_k(wanted: int, devices: int) -> None:
    """Renyi: the ith largest of K exponentials has mean sum_{j=i}^K 1/j, so the `wanted` best add
    up to the sum of these; over 8,000 rounds, by their own spread."""
    who, power, _ = chosen("best_channel", wanted, torch.ones(devices))
    total = (power * who).sum(2)
    expected = sum(1 / j for i in range(1, wanted + 1) for j in range(i, devices + 1))
    z = (total.mean() - expected) / (total.std() / total.size**0.5)
    assert abs(z) < stats.norm.isf(LEVEL / 2)


def test_proportional_fair_serves_all_alike() -> None:
    """At low SNR the rate is proportional to the gain, so R / T is scale-free: devices of mean
    gains 20 dB apart are each chosen a third of the time, where the best channel is all but always
    the strongest. Per trial, counts over 300 rounds after 100 to settle; selections repel each
    other over the window, so binomial spread bounds theirs: 20 trials, all devices within 4.9
    standard deviations (level 1e-4 of 60 counts)."""
    gain = 1e-3 * torch.tensor([0.01, 0.1, 1.0])
    who, power, mean = chosen("proportional_fair", 1, gain, window=50.0)
    late, served = who[100:].mean(0), (power * who)[100:].sum(0) / who[100:].sum(0)
    bound = stats.norm.isf(LEVEL / 120) * (2 / 9 / 300) ** 0.5
    assert np.abs(late - 1 / 3).max() < bound
    # and each is served on its peaks: the best of three relative gains has mean 1 + 1/2 + 1/3
    assert (served / mean).mean() == pytest.approx(11 / 6, rel=0.05)
    best, _, _ = chosen("best_channel", 1, gain)
    assert best.mean((0, 1))[2] > 0.85


def test_threshold_probability() -> None:
    """exp(-threshold / s) of mean SNR s, each device on its own: 8,000 binomial draws a device."""
    gain = torch.tensor([0.5, 1.0, 4.0])
    who, _, _ = chosen("threshold", 3, gain, min_snr_db=-3.0)
    p = np.exp(-(10**-0.3) / gain.numpy())
    count = TRIALS * ROUNDS
    z = (who.mean((0, 1)) - p) / np.sqrt(p * (1 - p) / count)
    assert np.abs(z).max() < stats.norm.isf(LEVEL / 6)


def heard(snr_db: float, devices: int, reals: int, **config: Any) -> tuple[np.ndarray, float]:
    """Errors [devices, reals] over the root mean square of a model that was broadcast, and gamma
    of a real, 2 * 10^(snr_db / 10)."""
    streams = Streams([6], [0], dtype=DOUBLE)
    one = torch.ones(1, dtype=DOUBLE)
    budget = LinkBudget(one[:, None], one[:, None], one, one, one.bool())
    setup = DownlinkSetup(np.ones(1), budget, streams, {"snr_db": one * snr_db})
    zero = torch.zeros(devices, dtype=torch.int64)
    cohort = Cohort.fresh(zero, torch.arange(devices), zero.double(), (devices,), devices)
    x = 7.0 * torch.randn(1, reals, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
    arrival = AnalogDownlink(AnalogDownlinkConfig(**config), setup).send(
        Broadcast({"model": x}), cohort, 0
    )
    error = arrival.rows(cohort, 0, devices).blocks["model"] - x
    return (error / x.square().mean().sqrt()).numpy(), 2 * 10 ** (snr_db / 10)


@pytest.mark.parametrize("snr_db", [-10.0, 10.0, 30.0])
def test_error_of_an_analog_downlink(snr_db: float) -> None:
    """Normal of variance m / (2 gamma): 20,000 errors by KS, and uncorrelated between devices."""
    error, snr = heard(snr_db, 40, 500)
    z = error * np.sqrt(snr)
    assert stats.kstest(z.ravel(), "norm").pvalue > LEVEL / 2
    likeness = np.corrcoef(z)[np.triu_indices(40, 1)]
    assert np.abs(likeness).max() < stats.norm.isf(LEVEL / 4 / likeness.size) / 500**0.5


def test_inversion_of_rayleigh_fading() -> None:
    """e = z / |h| sqrt(m / (2 gamma)), so e^2 2 gamma / m = z^2 / |h|^2 is of the F law with 1 and
    2 degrees of freedom, whose mean is infinite: one error of each of 20,000 devices, by KS."""
    error, snr = heard(10.0, 20_000, 1, fading=True)
    assert stats.kstest(error[:, 0] ** 2 * snr, "f", args=(1, 2)).pvalue > LEVEL


@pytest.mark.parametrize("snr_db", [-10.0, 10.0])
def test_mmse_under_rayleigh_fading(snr_db: float) -> None:
    """E|e|^2 / m = E[1 / (1 + a g)] = exp(1/a) E1(1/a) / a, a = 2 gamma, over 4,000 devices of 20
    numbers each, by the devices' own spread. That is at most 0.6: 1 / (1 + a g) lies in [0, 1], and
    20 numbers add less than a tenth of its square to its variance."""
    error, a = heard(snr_db, 4000, 20, fading=True, estimator="mmse")
    each = (error**2).mean(1)
    expected = np.exp(1 / a) * special.exp1(1 / a) / a
    z = (each.mean() - expected) / (min(each.std(), 0.6) / each.size**0.5)
    assert abs(z) < stats.norm.isf(LEVEL / 4)
