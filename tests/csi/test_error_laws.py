"""Laws of channels that are known, or known with an error, over Rayleigh fading. Seeds are fixed; a
statistical test's false-alarm level over all that it compares is 1e-4.

Mutations that make a test here fail: the error's variance not halved, one error for all devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from otafl import channels
from otafl.channels.rayleigh import Rayleigh
from otafl.core import registry
from otafl.core.rng import Streams

LEVEL = 1e-4


def over_rayleigh(name: str, devices: int, streams: Streams, variance: Tensor | None) -> Any:
    """The channel, and what is known of it."""
    budget, channel = channels.build([Rayleigh.Settings()] * streams.size, devices, streams)
    hyper = {} if variance is None else {"variance": variance}
    chosen = registry.settings("csi", name)()
    return channel, registry.make("csi", chosen, channel, budget, streams, hyper)


@pytest.mark.exact
def test_perfect_csi() -> None:
    channel, csi = over_rayleigh("perfect", 3, Streams([0, 0], [0, 1]), None)
    h, gain = channel.state(0).h, channel.state(0).gain
    assert torch.equal(csi.estimate(h, gain, 0), h)
    assert csi.variance.tolist() == [0.0, 0.0]


@pytest.mark.law
def test_csi_error() -> None:
    """e = h_hat - h over 100 rounds of 2 x 200 devices: |e|^2 / variance exponential (KS), phase
    uniform, uncorrelated with h, between devices, and between rounds."""
    variance = torch.tensor([0.04, 0.5], dtype=torch.float64)
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    channel, csi = over_rayleigh("error", 200, streams, variance)
    states = [channel.state(round).h for round in range(100)]
    gain = channel.state(0).gain
    errors = [csi.estimate(h, gain, round) - h for round, h in enumerate(states)]
    e = (torch.stack(errors).view(100, 2, 200) / variance.sqrt()[:, None]).numpy()
    h = torch.stack(states).view(100, 2, 200).numpy()
    for trial in (0, 1):
        assert stats.kstest(np.abs(e[:, trial].ravel()) ** 2, "expon").pvalue > LEVEL / 8
        angle = np.angle(e[:, trial].ravel()) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > LEVEL / 8
    for other in (e[:, :, ::-1], e[::-1], e[:, ::-1], h):  # pairs occur twice in a reversal
        n = other.size / (2 if other is not h else 1)
        power = np.abs((e * other.conj()).mean()) ** 2 * n
        assert power < -2 * np.log(LEVEL / 8)


@pytest.mark.exact
def test_csi_error_of_a_device_does_not_depend_on_the_others() -> None:
    h, gain = torch.zeros(2, 6, 1, 1, 1, dtype=torch.complex64), torch.ones(2, 6)
    streams = Streams([0, 0], [0, 1])
    _, both = over_rayleigh("error", 6, streams, torch.tensor([0.1, 0.1]))
    _, alone = over_rayleigh("error", 4, Streams([0], [1]), torch.tensor([0.1]))
    part = alone.estimate(h[:1, :4], gain[:1, :4], 3)
    torch.testing.assert_close(part[0], both.estimate(h, gain, 3)[1, :4], rtol=1e-6, atol=1e-7)
