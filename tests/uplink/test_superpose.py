"""The sum over the air, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.rounding import assert_agree
from support.uplink_steps import F64, STREAMS, close, delivery, on_air_of

from otafl.core.contracts import TransmitLimits
from otafl.uplink.coherent.over_the_air import superpose
from otafl.uplink.noise import draw_noise

pytestmark = pytest.mark.exact

SILENCE = torch.zeros(1, 2, dtype=F64)


def test_a_weighted_mean() -> None:
    """1/4 (2, 4) + 3/4 (2, -2)."""
    _, on_air = on_air_of(delivery())
    estimate, exact = superpose(on_air, SILENCE)
    close(estimate, [[2.0, -0.5]])
    close(exact, [[2.0, -0.5]])


def test_noise_has_the_variance_n_over_eta_of_the_scaled_sum() -> None:
    """sqrt(N / eta) / (K W) = sqrt(0.5 / 4) / 2."""
    _, on_air = on_air_of(delivery())
    noise = torch.tensor([[1.0, -2.0]]).double()
    estimate, _ = superpose(on_air, noise)
    expected = torch.tensor([[2.0, -0.5]]).double() + noise * (0.125**0.5 / 2)
    torch.testing.assert_close(estimate, expected)


def test_half_an_amplitude() -> None:
    """1/8 (2, 4) + 3/4 (2, -2), against the same error-free mean."""
    limits = TransmitLimits(energy_budget=torch.tensor([[5.0, 100.0]], dtype=F64))
    _, on_air = on_air_of(delivery(limits=limits))
    estimate, exact = superpose(on_air, SILENCE)
    close(estimate, [[1.75, -1.0]])
    close(exact, [[2.0, -0.5]])


def test_a_quarter_turn_moves_one_quadrature_to_the_other() -> None:
    """1/4 (2 + 4j) j + 3/4 (2 - 2j) = 0.5 - j."""
    _, on_air = on_air_of(delivery(), quadrature=True)
    turn = torch.tensor([1.0j, 1.0], dtype=torch.complex128)
    estimate, exact = superpose(replace(on_air, h=on_air.h * turn), SILENCE)
    close(estimate, [[0.5, -1.0]])
    close(exact, [[2.0, -0.5]])


def test_a_quarter_turn_on_one_quadrature_takes_the_device_away() -> None:
    _, on_air = on_air_of(delivery())
    turn = torch.tensor([1.0j, 1.0], dtype=torch.complex128)
    estimate, _ = superpose(replace(on_air, h=on_air.h * turn), SILENCE)
    close(estimate, [[1.5, -1.5]])


def test_the_noise_is_the_stream_of_the_group() -> None:
    assert_agree(draw_noise(STREAMS, 0, 0, 2), STREAMS.draw_normal("noise/0", 0, (2,)))
