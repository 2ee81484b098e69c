"""Laws of estimates from pilots. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: the error's variance not halved, one error for all devices or
all rounds, pilots' energy without L or without the large-scale gain, MMSE's factor 1 / (1 + 2 v) or
none.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from support.csi_bench import DEVICES, DOUBLE, LEVEL, ROUNDS, TRIALS, known, links

from otafl.csi.pilots import ls_estimator

pytestmark = pytest.mark.law


def pilots(estimator: str, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h, h_hat [rounds, S, K] under Rayleigh fading, and the variance [S, K] that the least-squares
    error should have: budgets and gains differ."""
    budget = torch.logspace(0.0, 2.0, DEVICES, dtype=DOUBLE).expand(TRIALS, -1)
    gain = torch.tensor([1.0, 0.2], dtype=DOUBLE)[:, None].expand(-1, DEVICES)
    channel, link, streams = links(budget, gain)
    hyper = {"power_db": torch.zeros(TRIALS, dtype=DOUBLE)}
    csi = known("pilots", channel, link, streams, hyper, estimator=estimator, length=length)
    states = [channel.state(t) for t in range(ROUNDS)]
    h_hat = torch.stack([csi.estimate(s.h, s.gain, t) for t, s in enumerate(states)])
    h = torch.stack([s.h for s in states])
    variance = 1.0 / (length * budget * gain)
    return h[..., 0, 0, 0].numpy(), h_hat[..., 0, 0, 0].numpy(), variance.numpy()


@pytest.mark.parametrize("length", [1, 8])
def test_least_squares_error(length: int) -> None:
    """|e|^2 L P beta of 20,000 estimates is exponential (KS), its phase uniform (KS); e is
    uncorrelated with h, between neighbouring devices and between rounds: |sum / n|^2 n is
    exponential."""
    h, h_hat, variance = pilots("ls", length)
    e = (h_hat - h) / np.sqrt(variance)
    assert stats.kstest((np.abs(e) ** 2).ravel(), "expon").pvalue > LEVEL / 5
    angle = np.angle(e.ravel()) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > LEVEL / 5
    for one, other in ((e, h), (e[:, :, 1:], e[:, :, :-1]), (e[1:], e[:-1])):
        power = np.abs((one * other.conj()).mean()) ** 2 * one.size
        assert power < -np.log(LEVEL / 5)


def test_sionna_least_squares() -> None:
    """Sionna's LSChannelEstimator on a grid with pilots on every cell states the error variance
    N0 / |p|^2 that ours has at L = 1, and both estimates' mean squared errors over 48,000 cells are
    within 4.1 standard deviations of it: |e|^2 is exponential, of relative variance 1."""
    cells, groups, power = 6000, 8, 5.0
    budget = torch.full((1, cells), power, dtype=DOUBLE)
    channel, link, streams = links(budget, torch.ones_like(budget))
    csi = known("pilots", channel, link, streams, {"power_db": torch.zeros(1, dtype=DOUBLE)})
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(1, cells, 1, 1, groups, dtype=torch.complex128, generator=generator)
    noise = torch.randn(cells, 1, 1, 1, groups, dtype=torch.complex128, generator=generator)
    y = h.view(cells, 1, 1, 1, groups) + noise / power**0.5
    h_sionna, stated = ls_estimator(groups, 1, streams)(y, torch.tensor(1 / power, dtype=DOUBLE))
    ours = csi.error_variance(link.gain)
    torch.testing.assert_close(stated.unique(), ours.unique(), rtol=1e-12, atol=0)
    bound = stats.norm.isf(LEVEL / 4) / (cells * groups) ** 0.5
    for estimate in (h_sionna.view_as(h), csi.estimate(h, link.gain, 0)):
        error = float((estimate - h).abs().square().mean()) * power
        assert abs(error - 1) < bound


def test_sionna_between_the_pilots() -> None:
    """Midway between two pilots the error is the mean of two: of half the variance, on a channel
    that is linear in frequency. 16,000 errors, within 4.1 standard deviations."""
    devices, groups = 16000, 5
    budget = torch.full((1, devices), 4.0, dtype=DOUBLE)
    channel, link, streams = links(budget, torch.ones_like(budget))
    hyper = {"power_db": torch.zeros(1, dtype=DOUBLE)}
    ramp = torch.arange(groups, dtype=DOUBLE) * (1.0 - 0.5j)
    h = ramp.expand(1, devices, 1, 1, groups).contiguous()
    state = channel.state(0)
    ramps = type(state)(h, state.gain)
    channel.state_among = lambda round, devices: ramps  # type: ignore[method-assign]
    csi = known("pilots", channel, link, streams, hyper, comb=2, length=3)
    power = (csi.estimate(h, link.gain, 0) - h).abs().square().mean((0, 1, 2, 3)) * 12.0
    expected = torch.tensor([1.0, 0.5, 1.0, 0.5, 1.0], dtype=DOUBLE)
    bound = stats.norm.isf(LEVEL / 10) / devices**0.5
    assert ((power / expected - 1).abs() < bound).all()


@pytest.mark.parametrize("length", [1, 8])
def test_mmse(length: int) -> None:
    """E|h_hat - h|^2 = v / (1 + v), and the error is orthogonal to the estimate: sums over 20,000
    normalised terms; |error|^2 is exponential, and the product's power 1."""
    h, h_hat, v = pilots("mmse", length)
    least = v / (1 + v)
    ratio = np.abs(h_hat - h) ** 2 / least
    bound = stats.norm.isf(LEVEL / 4)
    assert abs(ratio.mean() - 1) < bound / ratio.size**0.5
    product = (h_hat - h) * h_hat.conj() / np.sqrt(least / (1 + v))
    assert np.abs(product.mean()) ** 2 * product.size < -np.log(LEVEL / 4)
    plain = np.abs(pilots("ls", length)[1] - h) ** 2 / least  # and least squares is worse
    assert plain.mean() > 1 + bound / ratio.size**0.5
