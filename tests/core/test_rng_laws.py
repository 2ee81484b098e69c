"""Laws of the random streams. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: one half of a word used twice, the cosine used twice, the last
mixing dropped, a Box-Muller radius without the 2, keys added up in place of chained.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.rng import Streams

pytestmark = pytest.mark.law

LEVEL = 1e-4
Array = np.ndarray


def bits(uniform: torch.Tensor) -> Array:
    """[n, 2] uniforms of one word each -> [n, 46] its bits, as -1/2 and 1/2."""
    whole = (uniform.double().numpy() * 2**23).astype(np.int64)
    every = (whole[:, :, None] >> np.arange(23)) & 1
    return every.reshape(len(whole), 46).astype(np.float32) - 0.5


def over_positions(law: str, n: int) -> Array:
    return getattr(Streams([1], [0]), law)("x", 0, (n,))[0].numpy()


def over_devices(law: str, n: int) -> Array:
    device = torch.arange(n)
    draw = getattr(Streams([2], [0]), f"device_{law}")
    return draw("x", 0, torch.zeros_like(device), device, (1,))[:, 0].numpy()


def over_trials(law: str, n: int) -> Array:
    streams = Streams([3] * n, list(range(n)))
    return getattr(streams, law)("x", 0, (1,))[:, 0].numpy()


def over_rounds(law: str, n: int) -> Array:
    streams = Streams([4], [0])
    draw = getattr(streams, law)
    return np.array([draw("x", round, (1,))[0, 0].item() for round in range(n)])


WAYS = [(over_positions, 400_000), (over_devices, 400_000), (over_trials, 8_000)]
WAYS += [(over_rounds, 8_000)]


@pytest.mark.parametrize(("way", "n"), WAYS)
@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_distribution(law: str, way: Callable[[str, int], Array], n: int) -> None:
    """Kolmogorov-Smirnov over positions, devices, trials and rounds: each alone must be random,
    since a study reads along all of them."""
    values = way(law, n).astype(np.float64)
    assert stats.kstest(values, "norm" if law == "normal" else "uniform").pvalue > LEVEL


@pytest.mark.parametrize(("way", "n"), WAYS)
@pytest.mark.parametrize("lag", [1, 2, 64])
def test_neighbours_are_uncorrelated(way: Callable[[str, int], Array], n: int, lag: int) -> None:
    """Correlation of numbers `lag` apart, and of their squares, is N(0, 1/n)."""
    values = way("normal", n).astype(np.float64)
    for power in (1, 2):
        z = np.corrcoef(values[lag:] ** power, values[:-lag] ** power)[0, 1] * np.sqrt(n - lag)
        assert abs(z) < stats.norm.isf(LEVEL / 4)


@pytest.mark.parametrize("power", [1, 2])
def test_no_two_streams_are_correlated(power: int) -> None:
    """64 streams that differ in seed, trial, purpose, round or device, by single steps: all 2,016
    correlations of 20,000 normals (and of their squares) are N(0, 1/n)."""
    n, rows = 20_000, []
    for seed in (0, 1):
        streams = Streams([seed, seed], [0, 1])
        trial, device = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
        for purpose in ("noise", "noise/0"):
            for round in (0, 1):
                rows += list(streams.normal(purpose, round, (n,)))
                rows += list(streams.device_normal(purpose, round, trial, device, (n,)))
    table = torch.stack(rows).double().numpy() ** power
    correlation = np.corrcoef(table)[np.triu_indices(len(table), 1)]
    assert len(correlation) == 48 * 47 // 2
    z = np.abs(correlation).max() * np.sqrt(n)
    assert z < stats.norm.isf(LEVEL / 2 / len(correlation))


def test_every_bit_of_a_word_is_balanced_and_independent_of_the_others() -> None:
    """Of 200,000 words' 46 bits in use: shares of ones, and of agreements between two bits, are
    N(1/2, 1/4n)."""
    n = 200_000
    values = bits(Streams([7], [0]).uniform("x", 0, (2 * n,)).view(2, n).T)
    balance = np.abs(values.mean(0)).max() * 2 * np.sqrt(n)
    assert balance < stats.norm.isf(LEVEL / 4 / 46)
    agreement = np.abs((values.T @ values)[np.triu_indices(46, 1)]).max() * 4 / np.sqrt(n)
    assert agreement < stats.norm.isf(LEVEL / 4 / (46 * 45 // 2))


@pytest.mark.parametrize("of", ["device", "round"])
def test_half_the_bits_change_with_any_bit_of_the_key(of: str) -> None:
    """Avalanche: a flipped bit of the device's or the round's number flips each of the 46 bits of
    its first word in half of 4,000 cases, N(1/2, 1/4n)."""
    n, words = 4_000, 12
    streams = Streams([8], [0])
    number, zero = torch.arange(n), torch.zeros(1, dtype=torch.int64)

    def first_word(number: torch.Tensor) -> Array:
        if of == "round":
            return bits(streams.device_uniform_rounds("x", number, zero, zero, (2,))[:, 0])
        return bits(streams.device_uniform("x", 0, torch.zeros_like(number), number, (2,)))

    before = first_word(number)
    agree = [(before * first_word(number ^ (1 << bit))).mean(0) for bit in range(12, 12 + words)]
    assert np.abs(agree).max() * 4 * np.sqrt(n) < stats.norm.isf(LEVEL / 2 / (46 * words))


@pytest.mark.parametrize("apart", ["position", "halves", "device", "round", "trial"])
def test_pairs_fill_the_square(apart: str) -> None:
    """400,000 pairs of uniforms in 32 x 32 cells: Pearson's statistic is chi-square with 1,023
    degrees of freedom."""
    n = 400_000
    streams = Streams([9, 9], [0, 1])
    row = streams.uniform("x", 0, (2 * n,))[0]
    if apart == "position":
        first, second = row[::2], row[1::2]
    elif apart == "halves":  # of the same words
        first, second = row[:n], row[n:]
    elif apart == "device":
        pair = torch.tensor([0, 0]), torch.tensor([0, 1])
        first, second = streams.device_uniform("x", 0, *pair, (n,))
    elif apart == "round":
        first, second = (streams.uniform("x", round, (n,))[0] for round in (0, 1))
    else:
        first, second = streams.uniform("x", 0, (n,))
    cell = (first * 32).long() * 32 + (second * 32).long()
    observed = torch.bincount(cell, minlength=1024).numpy()
    assert stats.chisquare(observed).pvalue > LEVEL


def test_normal_pairs_are_independent_in_radius_and_angle() -> None:
    """The two numbers of a Box-Muller pair: r^2 / 2 is exponential, the angle uniform, and the two
    uncorrelated."""
    n = 200_000
    values = Streams([6], [0], dtype=torch.float64).normal("x", 0, (2 * n,))[0].numpy()
    half = (values[:n] ** 2 + values[n:] ** 2) / 2
    angle = np.arctan2(values[n:], values[:n]) / (2 * np.pi) + 0.5
    assert stats.kstest(half, "expon").pvalue > LEVEL / 3
    assert stats.kstest(angle, "uniform").pvalue > LEVEL / 3
    correlation = np.corrcoef(half, angle)[0, 1] * np.sqrt(n)
    assert abs(correlation) < stats.norm.isf(LEVEL / 6)
