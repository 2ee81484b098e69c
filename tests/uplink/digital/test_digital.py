"""Packets by hand: access, bounds, outage, thresholds and energy."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import points
from support.digital_bench import (
    BANDWIDTH,
    WATT,
    Bench,
    compute_amplitude,
    draw_rows,
)
from support.link_bench import make_bench, make_cohort

from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.running.stack_run import run_stack
from otafl.scenario import load_scenario
from otafl.uplink.base import deliver
from otafl.uplink.impairments.impairments import Impairments

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


POWER_W = 0.1

FAIR: dict[str, Any] = {
    "data.partition": "iid",
    "engine.dtype": "float64",
    "channel": {"name": "rayleigh", "snr_db": 10.0, "tx_power_dbm": 20.0},
    "codec": {"name": "topk", "keep": 0.1, "position_code": "enumerative", "value_bits": 4},
    "transport": {
        "name": "digital",
        "access": "ofdma",
        "gain_threshold": 0.5,
        "constraint": "peak",
        "shares": "active",
    },
}
PHONE: dict[str, Any] = {"name": "phone", "circuit_w": 0.0}

PARTS: dict[str, dict[str, Any]] = {
    "turns": {"transport.access": "tdma"},
    "schemes": {"transport.rate": "mcs", "csi": {"name": "error", "variance": 0.1}},
    "fitted": {"transport.max_symbols": 400.0, "transport.over_budget": "quantise"},
    "cells": {"topology": {"name": "cells", "servers": 3}},
    "joint": {
        "transport.shares": "all",
        "devices.cpu_frequency": "joint",
        "devices.deadline_s": 1.0,
        "devices.compute": PHONE,
    },
    "battery": {"devices.compute": PHONE | {"battery_j": 0.05, "harvest_w": 0.01}},
    "crashes": {"faults": {"crash_probability": 0.3, "byzantine": 1, "attack": "duplicate"}},
}
"""Part that they meet -> its settings."""


@pytest.mark.parametrize("name", PARTS)
def test_energy_is_within_the_peak_budget(name: str) -> None:
    """A device radiates at most its power for the time of the slots, and in turns all do so."""
    found = run_stack(points(copy.deepcopy(FAIR) | PARTS[name])).variables
    servers = PARTS[name].get("topology", {}).get("servers", 1)  # airtime is a mean over them
    energy, airtime = found["tx_energy_j"], found["airtime_s"] * servers
    if PARTS[name].get("transport.access") == "tdma":
        energy = energy.sum(-1, keepdims=True)
    assert (energy <= POWER_W * airtime[..., None] * (1 + 1e-6)).all()
    assert (energy > 0).any()
    assert np.isfinite(found["test_loss"]).all()


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


def test_bits_and_gap_of_a_digital_uplink() -> None:
    link = make_bench(transport="digital", access="ofdma", snr_gap_db=3.0, margin_db=1.0)
    uplink = link.transport.get_access_plan()
    assert uplink is not None
    assert uplink.access == "ofdma"
    assert uplink.gap.tolist() == [pytest.approx(10**0.4, rel=1e-6)]
    codec = link.transport.codec
    assert uplink.bits(100) == codec.count_bits(Group({"a": torch.zeros(1, 4, 25)})) == 3200


def half(threshold: torch.Tensor) -> Any:
    return torch.full((len(threshold), 3), 0.5).double()


def test_a_threshold_by_hand() -> None:
    """Of |h|^2 = 0.4, 1 and 3 the first is below 0.5. The others send at twice the power, SNR 2 and
    6, with 320 bits each."""
    link = Bench(
        [compute_amplitude([0.4, 1, 3])],
        gain_threshold=0.5,
        statistics=SimpleNamespace(prob_unit_gain_above=half),
    )
    x = draw_rows(3, 10)
    received, report = link.deliver(Group({"a": x}))
    torch.testing.assert_close(received.mean[0]["a"][0], x[1:].mean(0))
    uses = 320 / np.log2(1 + np.array([2, 6]))
    assert report.symbols.item() == pytest.approx(uses.sum())
    joules = 2 * np.array([0.0, *uses]) * WATT / BANDWIDTH
    np.testing.assert_allclose(report.energy_j[0], joules)
    np.testing.assert_allclose(report.power[0], [0, 2, 2])
    assert report.participants.item() == 2


def test_by_default_a_tenth_is_silent_and_no_packet_takes_longer_than_at_the_threshold() -> None:
    """Over Rayleigh fading 1 - exp(-0.1) are silent, as with tci. Without a threshold a packet
    takes any time."""
    count, bits = 4096, 320.0
    x, who = Group({"a": draw_rows(count, 10)}), make_cohort((count,), count)
    longest = bits / np.log2(1 + 0.1 * np.exp(0.1))
    for options, is_truncated in (({}, True), ({"gain_threshold": 0.0}, False)):
        link = make_bench(transport="digital", devices=count, snr_db=0.0, **options)
        _, report = deliver(link.transport, (x,), who, link.channel.get_state(0), 0)
        took = report.on_air_s[0] * link.transport.budget.bandwidth_hz[0]
        silent = float((took == 0).double().mean())
        if is_truncated:
            assert silent == pytest.approx(1 - np.exp(-0.1), abs=4 * np.sqrt(0.09 / count))
            assert float(took.max()) == pytest.approx(longest, rel=0.01)
        else:
            assert silent == 0.0
            assert float(took.max()) > 20 * longest


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("shares", ["all", "active"])
def test_a_peak_constraint_by_hand(access: str, shares: str) -> None:
    """Of |h|^2 = 0.4, 1 and 3 the first is below 0.5. The others send 320 bits at power 1: in turn
    at SNR 1 and 3, or in a third of the band at SNR 3 and 9, or in a half at 2 and 6."""
    link = Bench(
        [compute_amplitude([0.4, 1, 3])],
        gain_threshold=0.5,
        constraint="peak",
        access=access,
        shares=shares,
    )
    x = draw_rows(3, 10)
    received, report = link.deliver(Group({"a": x}))
    torch.testing.assert_close(received.mean[0]["a"][0], x[1:].mean(0))
    parts = 1 if access == "tdma" else {"all": 3, "active": 2}[shares]
    uses = parts * 320 / np.log2(1 + parts * np.array([1, 3]))
    slot = uses.sum() if access == "tdma" else uses.max()
    assert report.symbols.item() == pytest.approx(slot)
    assert report.bits.item() == 640
    np.testing.assert_allclose(report.energy_j[0], np.array([0, *uses]) * WATT / BANDWIDTH)
    np.testing.assert_allclose(report.power[0], [0, 1, 1])
    assert report.participants.item() == 2


def test_a_plan_needs_the_power_of_the_budget() -> None:
    """Under a peak constraint a device transmits at the planned power, or not at all."""
    devices = {"cpu_frequency": "joint", "compute": "phone", "deadline_s": 1.0}
    below = {"name": "digital", "gain_threshold": 0.1}
    for extra in ({}, {"constraint": "peak", "shares": "active"}):
        with pytest.raises(UserError, match="gain_threshold"):
            load_scenario({"name": "x", "transport": below | extra, "devices": devices})
    transport = below | {"constraint": "peak"}
    assert load_scenario({"name": "x", "transport": transport, "devices": devices})
