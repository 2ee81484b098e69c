"""Energies of noise, of interferers, and of a signal with noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from otafl.uplink.noncoherent.energies import NOISE_ENERGY, _add_noise


@pytest.mark.exact
def test_noise_is_added_to_the_signal_as_a_complex_number() -> None:
    """|mu + sqrt(r) exp(j theta)|^2 of an exponential r and one of 512 directions theta."""
    words = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (1, 50)))
    energy = torch.linspace(0.0, 9.0, 100, dtype=torch.float64).view(1, 2, 50)
    bits = words.view(torch.int32).view(1, 2, 50).numpy()
    r = -NOISE_ENERGY * np.log(bits * 2.0**-32 + 0.5)
    theta = 2.0 * math.pi / 512 * (bits & 511)
    expected = np.abs(np.sqrt(energy.numpy()) + np.sqrt(r) * np.exp(1j * theta)) ** 2
    _add_noise(energy, words)
    np.testing.assert_allclose(energy.numpy(), expected, rtol=1e-9, atol=1e-12)
