"""Modulation and coding schemes, and who takes which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.digital_bench import BANDWIDTH, WATT, Bench, compute_amplitude, draw_rows

from otafl.core.contracts import Group
from otafl.uplink.digital.rates import MCS_TABLES

pytestmark = pytest.mark.exact


def test_schemes_are_those_of_the_standard() -> None:
    """Spectral efficiencies as TS 38.214 prints them, some of each table, and Sionna's numbers."""
    printed = {
        "64qam": {0: 0.2344, 9: 1.3262, 10: 1.3281, 16: 2.5703, 17: 2.5664, 28: 5.5547},
        "256qam": {0: 0.2344, 4: 1.1758, 10: 2.5703, 11: 2.7305, 20: 5.3320, 27: 7.4063},
    }
    assert {name: len(table) for name, table in MCS_TABLES.items()} == {"64qam": 29, "256qam": 28}
    with torch.random.fork_rng():
        from sionna.phy.nr.utils import decode_mcs_index
    for number, (name, table) in enumerate(MCS_TABLES.items(), 1):
        for index, value in printed[name].items():
            assert table[index].efficiency == pytest.approx(value, abs=5e-5)
        for index, mcs in enumerate(table):
            order, rate = decode_mcs_index(index, number, is_pusch=False)
            assert (mcs.order, mcs.rate_1024) == (int(order), pytest.approx(1024 * float(rate)))


@pytest.mark.parametrize("table", ["64qam", "256qam"])
def test_the_fastest_supported_scheme(table: Any) -> None:
    """Over SNRs from -10 to 40 dB, against a search through the table; below the slowest, silence.
    At 2.568 bits a channel use the 64-QAM table has scheme 17 (2.566) and not 16 (2.570)."""
    snr = 10 ** (np.arange(-10, 40, 0.5) / 10)
    snr = np.append(snr, 2**2.568 - 1)
    link = Bench(
        [compute_amplitude(snr)], rate="mcs", mcs_table=table, rate_factor=0.9, snr_gap_db=1.0
    )
    _, report = link.deliver(Group({"a": draw_rows(len(snr), 10)}))
    carried = 0.9 * np.log2(1 + snr / 10**0.1)
    rates = [[m.efficiency for m in MCS_TABLES[table] if m.efficiency <= c] for c in carried]
    hand = np.array([320 / max(own) if own else 0 for own in rates])
    np.testing.assert_allclose(report.energy_j[0] * BANDWIDTH / WATT, hand, rtol=1e-9)
    silent = int((hand == 0).sum())
    assert 0 < silent < 20
    assert report.participants.item() == len(snr) - silent
    assert report.bits.item() == 320 * (len(snr) - silent)
