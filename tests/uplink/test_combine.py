"""The scalar channels behind the server's combiner, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from support.uplink_steps import F64, H, alignment, delivery, on_air_of

from otafl.core.contracts import TransmitLimits
from otafl.receivers.base import Receiver

pytestmark = pytest.mark.exact


class Half(Receiver):
    """f = (1, j) / sqrt(2)."""

    name: str = "half"

    def combine(
        self, h: torch.Tensor, transmit_mask: torch.Tensor, budget: torch.Tensor
    ) -> torch.Tensor:
        f = torch.tensor([1.0, 1.0j], dtype=h.dtype) / math.sqrt(2.0)
        return f.expand(*h.shape[:2], 2)


def test_one_antenna() -> None:
    _, channels = on_air_of(delivery(), alignment())
    assert channels.h.flatten().tolist() == H.tolist()
    assert channels.h_hat is channels.h
    assert channels.scalars.on_air_mask.tolist() == [[[True, True]]]
    assert channels.noise.tolist() == [[0.5]]


def test_two_antennas() -> None:
    """Device 1 is received as (1, 0), device 2 as (2j, 4): f^H h is 1 / sqrt(2), and (2j - 4j) /
    sqrt(2). The noise is that of one antenna."""
    h = torch.tensor([[1.0, 0.0], [2.0j, 4.0]], dtype=torch.complex128)[:, :, None, None]
    _, channels = on_air_of(delivery(h=h), alignment(receiver=Half()))
    expected = torch.tensor([1.0, -2.0j], dtype=torch.complex128) / math.sqrt(2.0)
    torch.testing.assert_close(channels.h.flatten(), expected)
    assert channels.noise.tolist() == [[0.5]]


def test_each_segment_has_the_channel_of_its_cell() -> None:
    blocks = torch.stack([H, 3.0 * H], 1)[:, None, :, None]
    _, channels = on_air_of(delivery(h=blocks, block_symbols=1), alignment())
    assert channels.h[0].tolist() == [H.tolist(), (3.0 * H).tolist()]


def test_a_residual_phase_turns_the_true_channel_alone() -> None:
    _, channels = on_air_of(delivery(), alignment(residual_phase_rad=0.5))
    assert channels.h_hat.flatten().tolist() == H.tolist()
    torch.testing.assert_close(channels.h.abs().flatten(), H.abs())
    turned = (channels.h / channels.h_hat).angle().abs()
    assert (turned > 0).all()
    assert (turned <= 0.5).all()


def test_a_device_without_energy_does_not_send() -> None:
    limits = TransmitLimits(energy_budget=torch.tensor([[0.0, 1.0]], dtype=F64))
    _, channels = on_air_of(delivery(limits=limits), alignment())
    assert channels.scalars.on_air_mask.tolist() == [[[False, True]]]
