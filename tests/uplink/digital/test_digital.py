"""The digital uplink: rates, airtime and energy by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.digital_bench import (
    BANDWIDTH,
    WATT,
    Bench,
    compute_amplitude,
    draw_rows,
    make_cohort,
    to_channel,
)
from torch import Tensor

from otafl.core.contracts import ChannelState, Group
from otafl.uplink.base import deliver

pytestmark = pytest.mark.exact


def test_turns_by_hand() -> None:
    """SNR 1, 3 and 15: 320 bits take 320, 160 and 80 channel uses, in turn or each in a third of
    the band. There the SNR is 3, 9 and 45, and the slowest needs 320 / log2(4) = 160 of its own,
    480 of the whole band."""
    x = Group({"a": draw_rows(3, 10)})
    _, tdma = Bench([compute_amplitude([1, 3, 15])]).deliver(x)
    assert tdma.symbols.item() == pytest.approx(560)
    assert tdma.airtime_s.item() == pytest.approx(560 / BANDWIDTH)
    joules = WATT / BANDWIDTH
    np.testing.assert_allclose(tdma.energy_j[0], np.array([320, 160, 80]) * joules)
    _, ofdma = Bench([compute_amplitude([1, 3, 15])], access="ofdma").deliver(x)
    own = 320 / np.log2(1 + 3 * np.array([1, 3, 15]))
    assert ofdma.symbols.item() == pytest.approx(480)
    np.testing.assert_allclose(ofdma.energy_j[0], 3 * own * joules)
    for report in (tdma, ofdma):
        assert report.bits.item() == 960
        assert report.participants.item() == 3
        np.testing.assert_allclose(report.power[0], 1.0)
        assert report.nmse.item() == pytest.approx(0, abs=1e-20)


def test_ofdma_shares_the_band_among_those_that_send() -> None:
    """Two trials of four and of two devices: 4 and 2 times the SNR of 1; several groups are one
    stream of bits of each device, 320 and device 0 another 640."""
    link = Bench(np.ones((2, 4)), access="ofdma")
    who = make_cohort((4, 2), 4)
    both = (
        Group({"a": draw_rows(6, 10)}),
        Group({"b": draw_rows(2, 20)}, row_index=torch.tensor([0, 4])),
    )
    received, report = link.deliver(*both, who=who)
    hand = [4 * 960 / math.log2(5), 2 * 960 / math.log2(3)]
    np.testing.assert_allclose(report.symbols, hand)
    np.testing.assert_allclose(report.bits, [4 * 320 + 640, 2 * 320 + 640])
    torch.testing.assert_close(received.mean[0]["a"][1], both[0].tensors["a"][4:].mean(0))
    torch.testing.assert_close(received.mean[1]["b"], both[1].tensors["b"])


def test_rate_is_the_mean_over_cells_after_combining() -> None:
    """Two antennas, two blocks, two sub-carrier groups: SNR of a cell is the sum over antennas."""
    rng = np.random.default_rng(1)
    h = rng.standard_normal((1, 2, 2, 2, 2)) + 1j * rng.standard_normal((1, 2, 2, 2, 2))
    budget, gap_db = np.array([[2.0, 0.5]]), 3.0
    link = Bench(h, budget=budget, snr_gap_db=gap_db)
    _, report = link.deliver(Group({"a": draw_rows(2, 10)}))
    snr = budget[0, :, None, None] * (np.abs(h[0]) ** 2).sum(1) / 10**0.3
    hand = 320 / np.log2(1 + snr).mean((1, 2))
    np.testing.assert_allclose(report.energy_j[0], hand * budget[0] * WATT / BANDWIDTH)


def test_a_longer_payload_sees_more_blocks() -> None:
    """Blocks of 4 channel uses: 10 reals see three of them."""
    blocks = compute_amplitude([1, 3, 7])[None, None, None, :, None]
    link = Bench(blocks[:, :, :, :1])
    asked = []

    def later(count: int) -> Tensor:
        asked.append(count)
        return to_channel(blocks)

    state = ChannelState(link.h, link.gain, block_symbols=4, blocks_fn=later)
    _, report = deliver(
        link.link, (Group({"a": draw_rows(1, 10)}),), make_cohort((1,), 1), state, 0
    )
    assert asked == [3]
    assert report.symbols.item() == pytest.approx(320 / 2)


def test_a_bound_on_the_slot_by_hand() -> None:
    """At SNR 1, 3 and 15 an update takes 320, 160 and 80 channel uses. Of 480 each device has 160:
    the first is silent and costs nothing. 479 leave the last alone; trial 2 has no bound."""
    link = Bench(
        compute_amplitude([[1, 3, 15]] * 3),
        max_symbols=1.0,
        per_trial={"max_symbols": [480, 479, 0]},
    )
    x = draw_rows(9, 10)
    received, report = link.deliver(Group({"a": x}))
    assert report.participants.tolist() == [2, 1, 3]
    np.testing.assert_allclose(report.symbols, [240, 80, 560])
    np.testing.assert_allclose(report.bits, [640, 320, 960])
    assert report.energy_j[0, 0] == report.energy_j[1, 1] == 0
    torch.testing.assert_close(received.mean[0]["a"][0], x[1:3].mean(0))
    torch.testing.assert_close(received.mean[0]["a"][1], x[5])
    # each of two that send has 239.5 of 479, the third device has no share
    _, report = link.deliver(Group({"a": x[:2]}), who=make_cohort((0, 2, 0), 3))
    assert report.participants.tolist() == [0, 1, 0]
    assert report.symbols[1].item() == pytest.approx(160)
    # the same in sub-bands: SNR 3, 9 and 45, and 160, 96.3 and 57.9 own channel uses
    _, report = Bench([compute_amplitude([1, 3, 15])], access="ofdma", max_symbols=300.0).deliver(
        Group({"a": draw_rows(3, 10)})
    )
    assert report.participants.item() == 2
    assert report.symbols.item() == pytest.approx(3 * 320 / math.log2(10))
