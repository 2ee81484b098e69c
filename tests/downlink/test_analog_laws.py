"""Laws of the noisy downlink. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: noise of a complex symbol in place of a real's, no fading,
twice its power, shrinkage to 1 - s, the model's mean power forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from otafl.core.contracts import Broadcast, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.downlink.analog import AnalogDownlink
from otafl.downlink.base import DownlinkSetup

pytestmark = pytest.mark.law


LEVEL = 1e-4
DOUBLE = torch.float64


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
    arrival = AnalogDownlink(AnalogDownlink.Settings(**config), setup).send(
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
