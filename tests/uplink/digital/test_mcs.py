"""Modulation and coding schemes, and who takes which."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.digital_bench import BANDWIDTH, WATT, Bench, compute_amplitude, draw_rows

from otafl.core.contracts import Group
from otafl.uplink.digital.packets import MCS_TABLE

pytestmark = pytest.mark.exact


def test_schemes_are_those_of_the_standard() -> None:
    """Spectral efficiencies as TS 38.214 prints them, some of the table, and Sionna's numbers."""
    printed = {0: 0.2344, 9: 1.3262, 10: 1.3281, 16: 2.5703, 17: 2.5664, 28: 5.5547}
    assert len(MCS_TABLE) == 29
    with torch.random.fork_rng():
        from sionna.phy.nr.utils import decode_mcs_index
    for index, value in printed.items():
        assert MCS_TABLE[index].efficiency == pytest.approx(value, abs=5e-5)
    for index, mcs in enumerate(MCS_TABLE):
        order, rate = decode_mcs_index(index, 1, is_pusch=False)
        assert (mcs.order, mcs.rate_1024) == (int(order), pytest.approx(1024 * float(rate)))


def test_the_fastest_supported_scheme() -> None:
    """Over SNRs from -10 to 40 dB, against a search through the table; below the slowest, silence.
    At 2.568 bits a channel use it is scheme 17 (2.566) and not 16 (2.570)."""
    snr = 10 ** (np.arange(-10, 40, 0.5) / 10)
    snr = np.append(snr, 2**2.568 - 1)
    link = Bench([compute_amplitude(snr)], rate="mcs", snr_gap_db=1.0)
    _, report = link.deliver(Group({"a": draw_rows(len(snr), 10)}))
    carried = np.log2(1 + snr / 10**0.1)
    rates = [[m.efficiency for m in MCS_TABLE if m.efficiency <= c] for c in carried]
    hand = np.array([320 / max(own) if own else 0 for own in rates])
    np.testing.assert_allclose(report.energy_j[0] * BANDWIDTH / WATT, hand, rtol=1e-9)
    silent = int((hand == 0).sum())
    assert 0 < silent < 20
    assert report.participants.item() == len(snr) - silent
    assert report.bits.item() == 320 * (len(snr) - silent)
