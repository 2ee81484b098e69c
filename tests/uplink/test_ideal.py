"""The error-free uplink, which is charged as one slot."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import draw_updates, make_bench, make_cohort

from otafl.core.contracts import Group

pytestmark = pytest.mark.exact


def test_ideal_is_charged_as_one_slot_at_full_power() -> None:
    """12 symbols at 1 MHz and 0.1 W: 12 us and 1.2 uJ a device."""
    x = draw_updates(6, 12)
    received, report = make_bench(transport="ideal").deliver((Group({"a": x}),), make_cohort())
    torch.testing.assert_close(received.mean[0]["a"][0], x.mean(0))
    assert received.per_device is not None
    assert torch.equal(received.per_device[0]["a"], x)
    assert report.airtime_s[0].item() == pytest.approx(12e-6)
    torch.testing.assert_close(report.energy_j[0], torch.full((6,), 1.2e-6).double())
    torch.testing.assert_close(report.power[0], torch.full((6,), 10.0).double())
    assert report.nmse[0] == report.side_symbols[0] == 0
