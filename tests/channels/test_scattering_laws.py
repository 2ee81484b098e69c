"""Laws of Rayleigh fading over rounds, trials, devices, antennas and blocks. Seeds are fixed; every
test's false-alarm level over all that it compares is 1e-4.

Mutations that make a test here fail: one stream for all batches of 32 devices, the device count in
a stream's name, the round's place in its block ignored, blocks that start anywhere, the block's
number left out of the seed, Sionna's generator not seeded, one stream for all blocks, the same
phases at all antennas, sqrt(1 - r) for sqrt(1 - r^2).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from support.fading_laws import (
    LEVEL,
    MOVING,
    Complex,
    assert_independent,
    assert_mean,
    assert_unit_normal,
    h_of,
    rayleigh,
    rician,
)
from torch import Tensor

from otafl.channels.base import Channel

pytestmark = pytest.mark.law


def fading(channel: Channel, rounds: int) -> Tensor:
    """[rounds, S, K]."""
    return torch.stack([channel.state(round).h[:, :, 0, 0, 0] for round in range(rounds)])


@pytest.fixture(scope="module")
def h() -> np.ndarray:
    """[200 rounds, 10 trials, 70 devices]."""
    return fading(rayleigh(70, range(10)), 200).numpy().astype(np.complex128)


def test_rayleigh_distribution(h: np.ndarray) -> None:
    """140,000 draws: |h|^2 exponential, the phase uniform, real part N(0, 1/2), by KS; E|h|^2 = 1
    (variance 1) and E|h|^4 = 2 (variance 20)."""
    g = np.abs(h.ravel()) ** 2
    assert stats.kstest(g, "expon").pvalue > LEVEL / 5
    assert stats.kstest(np.angle(h.ravel()) / (2 * np.pi) + 0.5, "uniform").pvalue > LEVEL / 5
    assert stats.kstest(h.ravel().real * np.sqrt(2), "norm").pvalue > LEVEL / 5
    bound = stats.norm.isf(LEVEL / 10)
    assert abs(g.mean() - 1) < bound / np.sqrt(g.size)
    assert abs((g**2).mean() - 2) < bound * np.sqrt(20 / g.size)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rayleigh_independence(h: np.ndarray, axis: int) -> None:
    """All pairs of rounds, of trials and of devices: |sum h h'^* / n|^2 is exponential of mean 1/n,
    for large n; and the same for h h'."""
    rows = np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1)
    n, upper = rows.shape[1], np.triu_indices(len(rows), 1)
    for other in (rows, rows.conj()):
        power = np.abs((rows @ other.T / n)[upper]) ** 2 * n
        assert power.max() < -np.log(LEVEL / 2 / power.size)


def test_draws_do_not_depend_on_what_else_is_drawn() -> None:
    """The first 10 of 50 devices, a trial alone, a round without those before it, rounds back and
    forth, another channel in between: the same bits."""
    reference = fading(rayleigh(50, [0, 1, 2]), 130)
    torch.manual_seed(5)
    torch.rand(3)
    few = rayleigh(10, [2])
    other = rayleigh(40, [7])
    for round in (129, 0, 64, 63, 65, 1, 129, 0):
        assert torch.equal(few.state(round).h[0, :, 0, 0, 0], reference[round, 2, :10])
        other.state(round)


def test_devices_of_different_batches_differ() -> None:
    values = torch.view_as_real(fading(rayleigh(70, [0, 1]), 70)).view(-1, 2)
    assert len(torch.unique(values, dim=0)) == 2 * 70 * 70


def test_points_that_share_seed_and_trial_share_the_channel() -> None:
    values = fading(rayleigh(5, [0, 1, 0], seed=3), 2)
    assert torch.equal(values[:, 0], values[:, 2])
    assert not torch.equal(values[:, 0], values[:, 1])
    assert not torch.equal(values[:, 0], fading(rayleigh(5, [0], seed=4), 2)[:, 0])


@functools.lru_cache(maxsize=1)
def block_draws() -> Complex:
    """[40 rounds, 5 trials, 40 devices, 3 antennas, 7 blocks]."""
    channel = rayleigh(40, range(5), antennas=3, block_symbols=10)
    return h_of(channel, range(40), 7)


def test_blocks_and_antennas_are_rayleigh() -> None:
    """168,000 draws."""
    assert_unit_normal(block_draws())


@pytest.mark.slow
def test_blocks_and_antennas_are_independent() -> None:
    """Between rounds, trials, devices, antennas and blocks: pairs of at least 4,200 draws."""
    assert_independent(block_draws())


def test_a_round_has_blocks_of_its_own() -> None:
    """Block b of a round is no block of another round, whatever the place in its batch."""
    values = block_draws().transpose(0, 4, 1, 2, 3).reshape(40 * 7, -1)
    assert len(np.unique(values, axis=0)) == 280


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(lambda **keys: rayleigh(4000, range(4), **keys), id="rayleigh"),
        pytest.param(lambda **keys: rayleigh(4000, range(4), **MOVING, **keys), id="moving"),
        pytest.param(lambda **keys: rician(4000, [-300.0] * 4, **keys), id="rician, scattered"),
    ],
)
def test_covariance_over_antennas(channel: Callable[..., Channel]) -> None:
    """E h_a h_b^* = 0.7^|a-b|, of 16,000 devices."""
    h = h_of(channel(antennas=5, antenna_correlation=0.7), [2]).reshape(-1, 5)
    pairs = list(itertools.combinations_with_replacement(range(5), 2))
    for a, b in pairs:
        product = h[:, a] * h[:, b].conj()
        assert_mean(product.real, 0.7 ** (b - a), 2 * len(pairs))
        if a != b:
            assert_mean(product.imag, 0.0, 2 * len(pairs))
