"""Devices in deep fades that are silent, under an average and under a peak power constraint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.digital_bench import BANDWIDTH, WATT, Bench, compute_amplitude, draw_rows

from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


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


def test_active_devices_share_the_bound() -> None:
    """At SNR 1 and 3 an update takes 320 and 160 channel uses. Of 640 each of two active devices
    has 320, but each of three only 213."""
    h = [compute_amplitude([0.4, 1, 3])]
    peak = {"gain_threshold": 0.5, "constraint": "peak", "max_symbols": 640.0}
    for shares, count in (("all", 1), ("active", 2)):
        _, report = Bench(h, shares=shares, **peak).deliver(Group({"a": draw_rows(3, 10)}))
        assert report.participants.item() == count


def test_all_devices_in_a_deep_fade() -> None:
    link = Bench(
        [compute_amplitude([0.1, 0.2])],
        gain_threshold=0.5,
        constraint="peak",
        access="ofdma",
        shares="active",
    )
    received, report = link.deliver(Group({"a": draw_rows(2, 10)}))
    assert received.any_delivered is not None
    assert not received.any_delivered.item()
    assert report.symbols.item() == report.bits.item() == report.energy_j.sum() == 0


def test_thresholds_of_one_batch() -> None:
    """Two trials with estimates below and above the threshold of the second alone: the estimate
    decides, not the true channel."""
    link = Bench(
        compute_amplitude([[1.0, 1.0]] * 2),
        compute_amplitude([[0.3, 2.0]] * 2),
        constraint="peak",
        per_trial={"gain_threshold": [0.0, 0.5]},
    )
    _, report = link.deliver(Group({"a": draw_rows(4, 10)}))
    assert (report.power > 0).tolist() == [[True, True], [False, True]]


def test_gains_are_means_over_antennas_of_the_first_block() -> None:
    """Two antennas, two coherence blocks: of means 0.5 and 3, and 3 and 0.5."""
    gain = np.array([[[0.2, 4.0], [0.8, 2.0]], [[4.0, 0.2], [2.0, 0.8]], [[1, 1], [1, 1]]])
    link = Bench(
        compute_amplitude(gain)[None, :, :, :, None],
        gain_threshold=0.7,
        statistics=SimpleNamespace(prob_unit_gain_above=half),
    )
    _, report = link.deliver(Group({"a": draw_rows(3, 10)}))
    assert (report.power[0] > 0).tolist() == [False, True, True]


def test_a_plan_needs_the_power_of_the_budget() -> None:
    """Under a peak constraint a device transmits at the planned power, or not at all."""
    devices = {"cpu_frequency": "joint", "compute": "phone", "deadline_s": 1.0}
    below = {"name": "digital", "gain_threshold": 0.1}
    for extra in ({}, {"constraint": "peak", "shares": "active"}):
        with pytest.raises(UserError, match="gain_threshold"):
            load_scenario({"name": "x", "transport": below | extra, "devices": devices})
    transport = below | {"constraint": "peak"}
    assert load_scenario({"name": "x", "transport": transport, "devices": devices})
