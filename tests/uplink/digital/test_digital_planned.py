"""What devices know of a digital uplink beforehand, worked by hand."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import make_bench

from otafl.core.contracts import Group

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("gap_db", "margin_db"), [(3.0, 1.0), (0.0, 2.0)])
def test_bits_and_gap_of_a_digital_uplink(gap_db: float, margin_db: float) -> None:
    options = {"access": "ofdma", "snr_gap_db": gap_db, "margin_db": margin_db}
    link = make_bench(transport="digital", **options)
    uplink = link.transport.get_access_plan()
    assert uplink is not None
    assert uplink.access == "ofdma"
    assert uplink.gap.tolist() == [pytest.approx(10 ** ((gap_db + margin_db) / 10), rel=1e-6)]
    codec = link.transport.codec
    assert uplink.bits(100) == codec.count_bits(Group({"a": torch.zeros(1, 4, 25)})) == 3200


def test_an_uplink_over_the_air_is_not_planned() -> None:
    assert make_bench().transport.get_access_plan() is None
