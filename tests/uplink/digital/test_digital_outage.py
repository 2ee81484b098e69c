"""Updates that are lost because their rate was above what the channel carries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.digital_bench import BANDWIDTH, WATT, Bench, compute_amplitude, draw_rows, make_cohort

from otafl.core.contracts import Group
from otafl.uplink.impairments.impairments import Impairments

pytestmark = pytest.mark.exact


def test_outage_by_hand() -> None:
    """Scheme 10 has 1.328 bits a channel use: devices at SNR 1 (one bit) are lost, those at SNR 3
    arrive. Weights 1, 2, 3 and 4: the mean is over devices 1 and 3, and 60 % of the weight came."""
    snr, weight = [1, 3, 1, 3], [1.0, 2, 3, 4]
    link = Bench([compute_amplitude(snr)], rate="mcs", mcs_index=10)
    x = draw_rows(4, 10)
    who = make_cohort((4,), 4, weight)
    received, report = link.deliver(Group({"a": x}), who=who)
    hand = (2 * x[1] + 4 * x[3]) / 6
    torch.testing.assert_close(received.mean[0]["a"][0], hand)
    assert received.group_weight[0].tolist() == [pytest.approx(0.6)]
    assert received.per_device is not None
    assert received.delivered_mask is not None
    assert received.delivered_mask[0] is not None
    assert received.delivered_mask[0].tolist() == [False, True, False, True]
    assert torch.equal(
        received.per_device[0]["a"], x * torch.tensor([0.0, 1, 0, 1])[:, None].double()
    )
    assert received.any_delivered is None
    symbols = 320 / (4 * 340 / 1024)
    np.testing.assert_allclose(report.energy_j[0], symbols * WATT / BANDWIDTH)
    assert report.symbols.item() == pytest.approx(4 * symbols)
    assert report.bits.item() == 1280
    assert report.participants.item() == 2
    exact = (torch.tensor(weight).double()[:, None] * x).sum(0) / 10
    nmse = (hand - exact).square().sum() / exact.square().sum()
    torch.testing.assert_close(report.nmse[0], nmse)


def test_outage_of_sums_and_of_masked_means() -> None:
    """Device 0 is lost. A sum is over what came, its count the weight that came; a coordinate that
    only device 0 knows is nobody's."""
    link = Bench([compute_amplitude([1, 3, 3])], rate="mcs", mcs_index=10)
    x, weight = draw_rows(3, 3), [0.2, 0.3, 0.5]
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0], [0, 1, 0]])
    who = make_cohort((3,), 3, weight)
    groups = Group({"a": x}, weighting="none"), Group({"a": x}, mask={"a": mask})
    received, _ = link.deliver(*groups, who=who)
    torch.testing.assert_close(received.mean[0]["a"][0], x[1] + x[2])
    assert received.group_weight[0].tolist() == [pytest.approx(0.8)]
    hand = torch.stack([x[1, 0], (0.3 * x[1, 1] + 0.5 * x[2, 1]) / 0.8, torch.zeros(()).double()])
    torch.testing.assert_close(received.mean[1]["a"][0], hand)
    count = received.group_weight[1]
    assert isinstance(count, dict)
    torch.testing.assert_close(count["a"][0], torch.tensor([0.3, 0.8, 0.0]).double())


def test_nobody_arrives() -> None:
    """In trial 1 all are lost: not alive, zero and finite."""
    link = Bench(compute_amplitude([[3, 3], [1, 1]]), rate="mcs", mcs_index=10)
    received, report = link.deliver(Group({"a": draw_rows(4, 5)}))
    assert received.any_delivered is not None
    assert received.any_delivered.tolist() == [True, False]
    assert received.mean[0]["a"][1].eq(0).all()
    assert report.participants.tolist() == [2, 0]
    assert report.energy_j[1].gt(0).all()
    assert report.nmse[1].item() == pytest.approx(1)


@pytest.mark.parametrize("margin_db", [0.0, 6.0])
def test_rates_by_the_estimate_and_outage_by_the_truth(margin_db: float) -> None:
    """Three devices at SNR 3 that believe in 1, 3 and 5: they send 1, 2 and 2.58 bits a channel use
    and the last is lost; at four times less (6 dB) all arrive. A gap of 3 dB is in both rates."""
    link = Bench(
        [compute_amplitude(np.array([3, 3, 3]) * 10**0.3)],
        [compute_amplitude(np.array([1, 3, 5]) * 10**0.3)],
        margin_db=margin_db,
        snr_gap_db=3.0,
    )
    x = draw_rows(3, 10)
    received, report = link.deliver(Group({"a": x}))
    believed = np.array([1, 3, 5]) / 10 ** (margin_db / 10)
    hand = 320 / np.log2(1 + believed) * WATT / BANDWIDTH
    np.testing.assert_allclose(report.energy_j[0], hand)
    arrived = 2 if margin_db == 0 else 3
    torch.testing.assert_close(received.mean[0]["a"][0], x[:arrived].mean(0))
    assert report.participants.item() == arrived


def test_combining_by_the_estimate_loses_power() -> None:
    """Two antennas (1, 0), believed to be (1, 1): of 2 that it believes in 1/2 arrives, so a margin
    of 4 does and one of 2.5 does not."""
    h, h_hat = np.zeros((1, 1, 2, 1, 1)), np.ones((1, 1, 2, 1, 1))
    h[0, 0, 0] = 1
    received, report = Bench(h, h_hat).deliver(Group({"a": draw_rows(1, 4)}))
    assert report.symbols.item() == pytest.approx(128 / math.log2(3))
    assert received.any_delivered is not None
    assert not received.any_delivered.item()
    for margin, arrives in ((2.5, 0), (4.0 + 1e-9, 1)):
        link = Bench(h, h_hat, margin_db=10 * math.log10(margin))
        _, report = link.deliver(Group({"a": draw_rows(1, 4)}))
        assert report.participants.item() == arrives


def test_interference_is_noise_that_the_server_knows_in_the_mean() -> None:
    """One interferer of power 1: the rate is that of SNR 3 / 2, and the update is lost where its
    exponential gain is above 1, as the interferer's draw says."""
    interference = Impairments.Settings(interference_db=0.0, interferers=1)
    link = Bench(compute_amplitude(np.full((200, 1), 3.0)), impairments=interference, seed=5)
    _, report = link.deliver(Group({"a": draw_rows(200, 4)}))
    np.testing.assert_allclose(report.symbols, 128 / math.log2(2.5))
    draw = link.streams.draw_normal("interference", 0, (2, 1, 2)).numpy()[:, 0, 0]
    arrived = (draw**2).sum(1) / 2 <= 1
    assert report.participants.tolist() == arrived.tolist()
    assert 90 < arrived.sum() < 160  # 1 - 1/e of 200 are 126
