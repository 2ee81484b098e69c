"""Packets: modulation and coding schemes, who takes which, and as many bits a real as fit into the
slot, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.digital_bench import BANDWIDTH, WATT, Bench, compute_amplitude, draw_rows

from otafl.core.contracts import Group
from otafl.uplink.digital.packets import MCS_TABLE, round_randomly

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


def test_fitted_bits_by_hand() -> None:
    """Of 600 channel uses each of three devices has 200, at 1, 2 and 4 bits: 200, 400 and 800, less
    64 for the range over 50 reals: 2, 6 and 14 bits a real. What they cost is what they send."""
    link = Bench([compute_amplitude([1, 3, 15])], max_symbols=600.0, over_budget="quantise")
    x = draw_rows(3, 50)
    received, report = link.deliver(Group({"a": x}))
    depth = np.array([2, 6, 14])
    bits = 64 + 50 * depth
    assert report.bits.item() == bits.sum()
    np.testing.assert_allclose(report.energy_j[0], bits / [1, 2, 4] * WATT / BANDWIDTH)
    assert received.per_device is not None
    got = received.per_device[0]["a"]
    span = (x.amax(1) - x.amin(1)).numpy()
    for k in range(3):
        assert len(got[k].unique()) <= 2 ** depth[k]
        worst = (got[k] - x[k]).abs().max().item()
        assert 0.4 < worst / (span[k] / (2 ** depth[k] - 1)) <= 1 + 1e-9
    torch.testing.assert_close(received.mean[0]["a"][0], got.mean(0))
    exact = x.mean(0)
    nmse = (got.mean(0) - exact).square().sum() / exact.square().sum()
    torch.testing.assert_close(report.nmse[0], nmse)
    # no bit a real: silent
    _, report = Bench(
        [compute_amplitude([1, 3, 15])], max_symbols=300.0, over_budget="quantise"
    ).deliver(Group({"a": x}))
    assert report.participants.item() == 2
    assert report.energy_j[0, 0] == 0


def test_stochastic_rounding_against_a_loop() -> None:
    block, depth = draw_rows(4, 12).view(4, 3, 4), torch.tensor([1.0, 2, 5, 16])
    draw = torch.rand(4, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = round_randomly(block, depth, draw)
    for k in range(4):
        x, u = block[k].flatten().numpy(), draw[k].flatten().numpy()
        levels, low, high = 2 ** int(depth[k]) - 1, x.min(), x.max()
        for value, one, out in zip(x, u, got[k].flatten().tolist(), strict=True):
            place = (value - low) / (high - low) * levels
            level = int(place) + (one >= 1 - (place - int(place)))
            assert out == pytest.approx(low + min(level, levels) * (high - low) / levels)
    constant = torch.full((1, 5), 0.3)
    assert torch.equal(round_randomly(constant, torch.tensor([3.0]), torch.rand(1, 5)), constant)
