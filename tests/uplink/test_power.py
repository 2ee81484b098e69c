"""What a power policy is asked, and what it sets, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.uplink_steps import F64, H, alignment, close, delivery, prepare

from otafl.core.contracts import Coefficients, Link, TransmitLimits
from otafl.power.ci import ChannelInversion
from otafl.receivers.combiners import Scalar
from otafl.uplink.delivery import Delivery
from otafl.uplink.transmission import Alignment, transmit

pytestmark = pytest.mark.exact


class Asked(ChannelInversion):
    """Channel inversion that counts its rounds, and keeps what it was asked."""

    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        links.append(link)
        return (state or 0) + 1, super().compute_coefficients(None, link)[1]


links: list[Link] = []


def wanted(made: Delivery, aligned: Alignment, state: Any = None) -> tuple[Any, Coefficients]:
    slot, sent, segments, _ = prepare(made)
    links.clear()
    state, on_air = transmit(slot, sent, segments, aligned, state)
    return state, on_air.scalars


def test_channel_inversion() -> None:
    """Amplitudes sqrt(P / m) |h| are 2 and 4: eta = 4, p = 2 / h."""
    state, coefficients = wanted(delivery(), alignment(Asked()), 4)
    assert state == 5
    close(coefficients.eta, [[4.0]])
    close(coefficients.p[0, 0], [2.0, -1.0j])
    assert coefficients.active_mask.all()


def test_what_the_policy_sees() -> None:
    wanted(delivery(), alignment(Asked(), residual_phase_rad=0.5))
    (link,) = links
    assert link.h.flatten().tolist() == H.tolist()
    close(link.symbol_power, [[[2.5, 9.0]]])
    assert link.budget.tolist() == [[10.0, 36.0]]
    assert link.noise_variance.tolist() == [0.5]
    assert link.segment_lengths is not None
    assert link.segment_lengths.tolist() == [2.0]
    assert (link.is_linear, link.num_antennas, link.num_symbols) == (True, 1, 2)
    assert (link.variation, link.energy_budget) == (None, None)


def test_an_update_sent_twice_has_four_times_the_power() -> None:
    """2.5 and 36: amplitudes 2 and 2, and the eta of the first device."""
    limits = TransmitLimits(num_copies=torch.tensor([[1.0, 2.0]], dtype=F64))
    _, coefficients = wanted(delivery(limits=limits), alignment(Asked()))
    close(links[0].symbol_power, [[[2.5, 36.0]]])
    close(coefficients.eta, [[4.0]])


def test_the_receive_scaling_of_least_error() -> None:
    """Amplitudes 2 arrive of both: sqrt(eta) = (N + 4 * 11.5) / (2 * 11.5) = 46.5 / 23."""
    aligned = alignment(Asked())
    aligned = replace(aligned, receiver=Scalar(scale="mmse"))
    _, coefficients = wanted(delivery(), aligned)
    assert float(coefficients.eta) == pytest.approx((46.5 / 23) ** 2)
    close(coefficients.p[0, 0], [2.0, -1.0j])
