"""Bursts of slow computing: a function of trial, device and round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from otafl.core.rng import Streams
from otafl.devices.faults import STRAGGLER
from otafl.devices.slowness import SlowBursts

pytestmark = pytest.mark.exact

MANY = 50
"""Devices of two trials whose draws are compared."""

SETTINGS: dict[str, Any] = {
    "straggler_probability": (0.02, 0.1),
    "straggler_rounds": (8.0, 3.0),
    "straggler_factor": (4.0, 2.5),
}


def make_streams(trials: int = 2) -> Streams:
    return Streams([3] * trials, range(trials), dtype=torch.float64)


def make_bursts(trials: int = 2) -> SlowBursts:
    numbers = (np.array(values[:trials]) for values in SETTINGS.values())
    return SlowBursts(*numbers, make_streams(trials), STRAGGLER)


def draw_all(bursts: SlowBursts, rounds: int) -> np.ndarray:
    """Draw the factors of all devices, [rounds, 2, MANY]."""
    trial, device = np.divmod(np.arange(2 * MANY), MANY)
    drawn = [bursts.draw_factor(trial, device, t) for t in range(rounds)]
    return np.stack(drawn).reshape(rounds, 2, MANY)


def test_they_are_a_function_of_the_round() -> None:
    """Whoever is asked for, in which order, stacked or alone, with rounds left out or again."""
    whole, other = draw_all(make_bursts(), 40), make_bursts()
    for t, trial, device in (
        (9, [0], [3]),
        (30, [1, 1], [2, 49]),
        (31, [0, 1], [49, 0]),
        (5, [1], [7]),
        (39, [0, 0, 0], [0, 1, 2]),
        (39, [], []),
    ):
        drawn = other.draw_factor(np.array(trial, dtype=int), np.array(device, dtype=int), t)
        np.testing.assert_array_equal(drawn, whole[t, trial, device])
    alone = make_bursts(trials=1)
    for t in range(40):
        drawn = alone.draw_factor(np.zeros(MANY, dtype=int), np.arange(MANY), t)
        np.testing.assert_array_equal(drawn, whole[t, 0])


def test_a_burst_by_hand() -> None:
    """Draws below p begin one, draws below 1/L end it, in the round that they are of."""
    bursts, streams = make_bursts(), make_streams()
    pair = torch.tensor([1]), torch.tensor([4])
    state, expected = False, []
    for t in range(60):
        u = float(streams.draw_device_uniform("fault/straggler", t, *pair, ())[0])
        state = not u < 1 / 3.0 if state else u < 0.1
        expected.append(2.5 if state else 1.0)
    drawn = [bursts.draw_factor(np.array([1]), np.array([4]), t) for t in range(60)]
    assert np.concatenate(drawn).tolist() == expected
    assert len(set(expected)) == 2
