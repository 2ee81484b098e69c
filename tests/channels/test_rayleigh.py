"""The Rayleigh channel's shapes and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate
from support.made_channels import make_channel

pytestmark = pytest.mark.exact


def test_shapes_and_types() -> None:
    state = make_channel("rayleigh", 3, [0, 1], torch.float32, path_loss_db=100.0).get_state(0)
    assert state.h.shape == (2, 3, 1, 1, 1)
    assert state.h.dtype == torch.complex64
    torch.testing.assert_close(state.gain, torch.full((2, 3), 1e-10))


def test_mean_inverse_of_rayleigh() -> None:
    """E[1/g; g >= threshold] by numerical integration over the exponential law."""
    for threshold, gain, variance in ((0.01, 1.0, 0.0), (0.1, 0.02, 0.3), (2.0, 1.0, 0.3)):
        beta = gain * (1 + variance)
        ends = np.log(threshold), np.log(60 * beta)
        expected = 0.0
        if ends[0] < ends[1]:
            expected, _ = integrate.quad(lambda t, b=beta: np.exp(-np.exp(t) / b) / b, *ends)
        value = make_channel("rayleigh", 1).compute_mean_inverse(threshold, gain, variance)
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_known_exponential_integrals() -> None:
    channel = make_channel("rayleigh", 1)
    assert channel.compute_mean_inverse(0.1, 1.0, 0.0) == pytest.approx(1.822924, abs=1e-6)
    assert channel.compute_mean_inverse(0.01, 1.0, 0.0) == pytest.approx(4.037930, abs=1e-6)
