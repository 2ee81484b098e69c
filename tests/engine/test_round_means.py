"""Costs of a slot that the host reads in one transfer."""

from __future__ import annotations

import pytest
import torch

from otafl.core.contracts import LinkReport
from otafl.engine.round_means import read_costs

pytestmark = pytest.mark.exact


def test_one_transfer_has_the_numbers_of_four() -> None:
    """Single precision converts to double without a change, in whatever tensor it is."""
    draw = torch.rand(3, 12, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros(3)
    report = LinkReport(
        *(zeros, zeros, zeros),
        airtime_s=draw[:, 0],
        participants=draw[:, 1],
        power=draw[:, 2:7],
        energy_j=draw[:, 2:7],
        on_air_s=draw[:, 7:],
        nmse=zeros,
    )
    wanted = report.participants, report.airtime_s, report.energy_j, report.on_air_s
    for found, one in zip(read_costs(report), wanted, strict=True):
        assert found.dtype == "float64"
        assert found.tolist() == one.double().tolist()
