"""Laws of the counter-based generator: along its dimensions, by bits, and of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import torch
from scipy import stats

from otafl.core.rng import Streams
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import Check, check_distribution, check_mean, counts, largest, state_law

BITS = 46
"""Used bits of a word; a uniform number has 23."""

CELLS = 32
KEYS = ("devices", "rounds")
FLIPPED = range(12, 24)
"""Bits of a number that are flipped."""


def _streams(bench: Bench, trials: int = 1) -> Streams:
    return Streams([1] * trials, list(range(trials)), bench.torch_device)


def _over_positions(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench), f"draw_{law}")
    return np.asarray(draw(CONFORMANCE, 0, (count,))[0].cpu())


def _over_devices(bench: Bench, law: str, count: int) -> np.ndarray:
    device = torch.arange(count, device=bench.torch_device)
    draw = getattr(_streams(bench), f"draw_device_{law}")
    return np.asarray(draw(CONFORMANCE, 0, torch.zeros_like(device), device, (1,))[:, 0].cpu())


def _over_trials(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench, count), f"draw_{law}")
    return np.asarray(draw(CONFORMANCE, 0, (1,))[:, 0].cpu())


def _over_rounds(bench: Bench, law: str, count: int) -> np.ndarray:
    draw = getattr(_streams(bench), f"draw_{law}")
    return np.array([float(draw(CONFORMANCE, round, (1,))[0, 0]) for round in range(count)])


WAYS: dict[str, tuple[Callable[[Bench, str, int], np.ndarray], int]] = {
    "positions": (_over_positions, 400_000),
    "devices": (_over_devices, 400_000),
    "trials": (_over_trials, 8_000),
    "rounds": (_over_rounds, 8_000),
}
"""Dimension along which numbers are read -> reader and quantity; a study reads along all."""


@state_law("streams: distributions", "Kolmogorov and Smirnov", "{}", WAYS)
def _distributions(bench: Bench, way: str) -> Iterator[Check]:
    draw, count = WAYS[way]
    for law, expected in (("normal", stats.norm), ("uniform", stats.uniform)):
        yield check_distribution(draw(bench, law, bench.scale_size(count)), expected.cdf, law)


@state_law("streams: neighbours", "correlation of normal numbers and of their squares", "{}", WAYS)
def _neighbours(bench: Bench, way: str) -> Iterator[Check]:
    """Correlate numbers 1, 2 and 64 apart."""
    draw, count = WAYS[way]
    values = draw(bench, "normal", bench.scale_size(count)).astype(np.float64)
    for lag, power in product((1, 2, 64), (1, 2)):
        found = np.corrcoef(values[lag:] ** power, values[:-lag] ** power)[0, 1]
        yield largest(found * math.sqrt(len(values) - lag), f"{lag} apart, to the power {power}")


@state_law("streams: pairs of streams", "correlation of normal numbers and of their squares")
def _pairs(bench: Bench) -> Iterator[Check]:
    """Correlate every two of 48 streams.

    They differ in seed, trial, purpose, round and device, by single steps.
    """
    count, rows = bench.scale_size(20_000), []
    for seed in (0, 1):
        streams = Streams([seed, seed], [0, 1], bench.torch_device)
        trial, device = (
            torch.tensor(one).to(bench.torch_device) for one in ([0, 0, 1, 1], [0, 1, 0, 1])
        )
        for purpose, round in product((CONFORMANCE / "noise", CONFORMANCE / "noise/0"), (0, 1)):
            rows += list(streams.draw_normal(purpose, round, (count,)))
            rows += list(streams.draw_device_normal(purpose, round, trial, device, (count,)))
    table = torch.stack(rows).double().cpu().numpy()
    for power in (1, 2):
        found = np.corrcoef(table**power)[np.triu_indices(len(table), 1)]
        yield largest(found * math.sqrt(count), f"to the power {power}")


def _bits(uniform: torch.Tensor) -> np.ndarray:
    """Return the bits [n, 46] of uniform numbers [n, 2] of one word each, as -1/2 and 1/2."""
    whole = (uniform.double().cpu().numpy() * 2**23).astype(np.int64)
    every = (whole[:, :, None] >> np.arange(23)) & 1
    return np.asarray(every.reshape(len(whole), BITS).astype(np.float32) - 0.5)


@state_law("streams: bits of a word", "shares of ones, and of two that agree, N(1/2, 1/(4 n))")
def _words(bench: Bench) -> Iterator[Check]:
    count = bench.scale_size(200_000)
    bits = _bits(_streams(bench).draw_uniform(CONFORMANCE, 0, (2 * count,)).view(2, count).T)
    yield largest(bits.mean(0) * 2.0 * math.sqrt(count), "ones")
    agreement = (bits.T @ bits)[np.triu_indices(BITS, 1)]
    yield largest(agreement * 4.0 / math.sqrt(count), "two that agree")


@state_law("streams: avalanche", "any bit of the key changes half of the bits", "{}", KEYS)
def _avalanche(bench: Bench, key: str) -> Iterator[Check]:
    """Flip a bit of the number of a device or round, and count the unchanged bits of its word."""
    count = bench.scale_size(4_000)
    streams = _streams(bench)
    number = torch.arange(count, device=bench.torch_device)
    zero = torch.zeros_like(number)

    def words(number: torch.Tensor) -> np.ndarray:
        if key == "rounds":
            first = zero[:1], zero[:1]
            return _bits(
                streams.draw_device_uniform_rounds(CONFORMANCE, number, *first, (2,))[:, 0]
            )
        return _bits(streams.draw_device_uniform(CONFORMANCE, 0, zero, number, (2,)))

    before = words(number)
    agree = [(before * words(number ^ (1 << bit))).mean(0) for bit in FLIPPED]
    yield largest(np.array(agree) * 4.0 * math.sqrt(count))


@state_law("streams: pairs fill the square", "Pearson, 32 x 32 cells")
def _square(bench: Bench) -> Iterator[Check]:
    """Count pairs of uniform numbers in cells.

    The pairs are neighbours, the two of a word, and those of two devices, rounds and trials.
    """
    count = bench.scale_size(400_000)
    streams = Streams([9, 9], [0, 1], bench.torch_device)
    row = streams.draw_uniform(CONFORMANCE, 0, (2 * count,))[0]
    zero, device = (torch.tensor(one).to(bench.torch_device) for one in ([0, 0], [0, 1]))
    pairs = {
        "positions": (row[::2], row[1::2]),
        "two of a word": (row[:count], row[count:]),
        "devices": tuple(streams.draw_device_uniform(CONFORMANCE, 0, zero, device, (count,))),
        "rounds": tuple(streams.draw_uniform(CONFORMANCE, round, (count,))[0] for round in (0, 1)),
        "trials": tuple(streams.draw_uniform(CONFORMANCE, 0, (count,))),
    }
    for case, (first, second) in pairs.items():
        cell = (first * CELLS).long() * CELLS + (second * CELLS).long()
        observed = torch.bincount(cell, minlength=CELLS**2).cpu().numpy()
        yield counts(np.full(CELLS**2, count / CELLS**2), observed, case)


@state_law("streams: normal pairs", "Box and Muller: r^2 / 2 exponential, the angle uniform")
def _box_muller(bench: Bench) -> Iterator[Check]:
    count = bench.scale_size(200_000)
    streams = Streams([6], [0], bench.torch_device, torch.float64)
    first, second = streams.draw_normal(CONFORMANCE, 0, (2 * count,))[0].view(2, -1).cpu().numpy()
    half = (first**2 + second**2) / 2.0
    angle = np.arctan2(second, first) / (2.0 * np.pi) + 0.5
    yield check_distribution(half, stats.expon.cdf, "radius")
    yield check_distribution(angle, stats.uniform.cdf, "angle")
    yield check_mean(0.0, (half - 1.0) * (angle - 0.5), "both")
