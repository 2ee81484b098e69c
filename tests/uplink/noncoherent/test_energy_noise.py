"""Noise of pairs of energies: along the signal once, across it in the other antennas."""

from __future__ import annotations

import pytest

from otafl.core.rng import Streams
from otafl.uplink.noise import draw_energy_noise

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("antennas", [1, 2, 4])
def test_noise_across_the_signal_is_that_of_the_other_antennas(antennas: int) -> None:
    """A antennas have A - 1 directions orthogonal to the signal, for both energies of a pair."""
    along, across = draw_energy_noise(Streams([3, 3], [0, 1]), 0, 5, antennas, 7)
    assert along.shape == (2, 7)
    assert (0 if across is None else across.shape[1]) == antennas - 1
    assert across is None or across.shape[2:] == (2, 7)
