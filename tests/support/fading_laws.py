"""What laws of fading are tested with, at a false-alarm level of 1e-4 over all that is compared."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from support.made_channels import made

from otafl.channels.base import Channel

LEVEL = 1e-4
DOPPLER_HZ = 10.0
MOVING: dict[str, Any] = {"speed_kmh": DOPPLER_HZ * 3.6 * 299_792_458.0 / 3e9, "carrier_hz": 3e9}

Complex = np.ndarray[Any, np.dtype[np.complex128]]

rayleigh = functools.partial(made, "rayleigh", dtype=torch.float32)


def rician(devices: int, k_factor_db: Sequence[float], **keys: Any) -> Channel:
    """Of one trial a K-factor."""
    each = [{"k_factor_db": level} for level in k_factor_db]
    return made("rician", devices, range(len(each)), torch.float32, each=each, **keys)


def h_of(channel: Channel, rounds: Sequence[int], blocks: int = 1) -> Complex:
    """[rounds, S, K, A, B]."""
    states = [channel.state(round) for round in rounds]
    h = [state.h if state.later is None else state.later(blocks) for state in states]
    return torch.stack(h)[..., 0].numpy().astype(np.complex128)


def draws(channel: Channel, rounds: int) -> Complex:
    """[rounds, S, K, A, F] of the first block."""
    h = torch.stack([channel.state(round).h[:, :, :, 0] for round in range(rounds)])
    return h.numpy().astype(np.complex128)


def small(error: np.ndarray | complex, draws: int, comparisons: int = 1) -> bool:
    """Whether a mean over so many unit-variance complex numbers of mean zero is that small."""
    bound = -math.log(LEVEL / max(comparisons, np.size(error)))
    return bool((np.abs(error) ** 2 * draws < bound).all())


def assert_mean(sample: np.ndarray, expected: float, tests: int = 1) -> None:
    """Of independent numbers, within their standard error."""
    bound = stats.norm.isf(LEVEL / 2 / tests) * sample.std() / math.sqrt(sample.size)
    assert abs(sample.mean() - expected) < bound


def assert_unit_normal(h: Complex, tests: int = 1) -> None:
    """|h|^2 exponential of mean 1 and the phase uniform, by KS; mean power 1."""
    g = np.abs(h.ravel()) ** 2
    assert stats.kstest(g, "expon").pvalue > LEVEL / 3 / tests
    angle = np.angle(h.ravel()) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > LEVEL / 3 / tests
    assert_mean(g, 1.0, 3 * tests)


def assert_independent(h: Complex) -> None:
    """All pairs along each of the axes, others taken for draws: |sum h h'^* / n|^2 is exponential
    of mean 1 / n for large n; and the same for h h'."""
    for axis in range(h.ndim):
        rows = np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1)
        n, upper = rows.shape[1], np.triu_indices(len(rows), 1)
        for other in (rows, rows.conj()):
            power = np.abs((rows @ other.T / n)[upper]) ** 2 * n
            assert power.max() < -np.log(LEVEL / 2 / h.ndim / power.size)
