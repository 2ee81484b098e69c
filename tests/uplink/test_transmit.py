"""What is transmitted within the limits of a slot, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.uplink_steps import F64, H, X, alignment, close, delivery, on_air_of, prepare

from otafl.core.contracts import TransmitLimits
from otafl.uplink.delivery import Delivery
from otafl.uplink.transmission import Transmission, receive, transmit

pytestmark = pytest.mark.exact


def delivered(made: Delivery, on_air: Transmission) -> list[Any]:
    exact = torch.zeros(1, 2, dtype=F64)
    receive(on_air, exact.clone(), exact, made)
    (mask_fn,) = made.report().delivered_mask_fns
    return mask_fn().tolist()


def test_without_limits() -> None:
    """Both arrive with gain one, of weights 1/4 and 3/4."""
    made, on_air = on_air_of(delivery())
    torch.testing.assert_close(on_air.gain[0, 0], torch.ones(2).to(H))
    assert on_air.signal is on_air.sent
    assert on_air.weight.tolist() == [[1.0]]
    assert on_air.unit.tolist() == [[0.5]]
    close(on_air.row_gain[:, 0], [0.25, 0.75])
    close(on_air.variance, [[0.5 / 4 / 4]])
    assert delivered(made, on_air) == [[True, True]]


def test_the_state_of_the_policy_comes_out() -> None:
    state, _ = transmit(*prepare(delivery())[:3], alignment(), None)
    assert state is None


def test_a_quarter_of_the_energy_is_half_of_the_amplitude() -> None:
    """Device 1 would radiate 4 * 5, and has 5; eta stays."""
    limits = TransmitLimits(energy_budget=torch.tensor([[5.0, 100.0]], dtype=F64))
    _, on_air = on_air_of(delivery(limits=limits))
    close(on_air.scalars.p[0, 0], [1.0, -1.0j])
    close(on_air.scalars.eta, [[4.0]])
    close(on_air.gain[0, 0], [0.5, 1.0])


def test_a_device_without_energy_is_left_out_of_the_mean() -> None:
    """The weight on air is that of device 2, whose own scale 1 / (K W) makes up for it."""
    limits = TransmitLimits(energy_budget=torch.tensor([[0.0, 100.0]], dtype=F64))
    made, on_air = on_air_of(delivery(limits=limits))
    assert on_air.weight.tolist() == [[0.75]]
    close(on_air.row_gain[1], [1.0])
    assert delivered(made, on_air) == [[False, True]]


def test_a_crash_cuts_what_is_transmitted() -> None:
    """Device 1 sends one of its two symbols: 1 of the energy 5 is on air. What it has to send
    stays."""
    limits = TransmitLimits(sent_fraction=torch.tensor([[0.5, 1.0]], dtype=F64))
    made, on_air = on_air_of(delivery(limits=limits))
    assert on_air.signal.x.tolist() == [[2.0, 0.0], [2.0, -2.0]]
    assert on_air.sent.x.tolist() == X.tolist()
    close(on_air.energy, [[[1.0, 18.0]]])
    assert delivered(made, on_air) == [[[True, False], [True, True]]]
