"""Decibels worked by hand, and the physical link budget.

Mutations that make a test here fail: 20 dB a decade of power, dBm without the -30 dB to watt, the
noise figure subtracted, bandwidth left out of the noise power, devices' offsets left out, not
repeated, or taken off, a channel's own path loss overlooked.
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch

from otafl.channels.config import ChannelConfig, RayleighConfig
from otafl.channels.fading import link_budget
from otafl.core.units import db_to_linear, dbm_to_watt, linear_to_db, noise_power_w, watt_to_dbm


@pytest.mark.parametrize(
    ("value_db", "ratio"), [(0.0, 1.0), (10.0, 10.0), (-20.0, 0.01), (3.0103, 2.0)]
)
def test_decibels(value_db: float, ratio: float) -> None:
    assert db_to_linear(value_db) == pytest.approx(ratio, rel=1e-6)
    assert linear_to_db(ratio) == pytest.approx(value_db, abs=1e-5)


@pytest.mark.parametrize(("value_dbm", "power_w"), [(30.0, 1.0), (20.0, 0.1), (0.0, 1e-3)])
def test_dbm(value_dbm: float, power_w: float) -> None:
    assert dbm_to_watt(value_dbm) == pytest.approx(power_w, rel=1e-12)
    assert watt_to_dbm(power_w) == pytest.approx(value_dbm, abs=1e-12)


def test_zero_is_minus_infinity() -> None:
    assert linear_to_db(0.0) == -math.inf
    assert watt_to_dbm(0.0) == -math.inf


def test_thermal_noise_by_hand() -> None:
    """-174 dBm/Hz + 60 dBHz + 5 dB = -109 dBm = 1e-13.9 W."""
    assert noise_power_w(1e6, 5.0) == pytest.approx(10**-13.9, rel=1e-12)


def test_physical_link_budget_by_hand() -> None:
    """20 dBm over -109 dBm is 129 dB; less 110 dB of path loss, 19 dB arrive."""
    config = RayleighConfig(
        tx_power_dbm=20.0, path_loss_db=110.0, bandwidth_hz=1e6, noise_figure_db=5.0
    )
    budget = link_budget([config], 2, torch.device("cpu"), torch.float64)
    assert budget.budget.tolist() == [pytest.approx([10**12.9] * 2, rel=1e-9)]
    assert budget.gain.tolist() == [pytest.approx([1e-11] * 2, rel=1e-9)]
    assert budget.tx_power_w.tolist() == [pytest.approx([0.1] * 2)]
    assert budget.unit_power_w.item() == pytest.approx(10**-13.9, rel=1e-9)
    assert budget.unit_energy_j.item() == pytest.approx(10**-19.9, rel=1e-9)
    assert budget.bandwidth_hz.item() == 1e6
    assert budget.physical.tolist() == [True]


def test_normalised_budgets_of_several_trials() -> None:
    """snr_db says it all; the default is 20 dB, and transmit power does not enter."""
    configs = [
        RayleighConfig(snr_db=10.0),
        RayleighConfig(tx_power_dbm=30.0),
        RayleighConfig(snr_db=-3.0, bandwidth_hz=2e6),
    ]
    budget = link_budget(configs, 2, torch.device("cpu"), torch.float64)
    expected = torch.tensor([10.0, 100.0, 10**-0.3], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, expected[:, None].expand(3, 2))
    assert budget.gain.tolist() == [[1.0] * 2] * 3
    watts = torch.tensor([0.1, 1.0, 0.1], dtype=torch.float64)
    torch.testing.assert_close(budget.tx_power_w, watts[:, None].expand(3, 2))
    assert budget.bandwidth_hz.tolist() == [1e6, 1e6, 2e6]
    assert budget.physical.tolist() == [False] * 3


@pytest.mark.parametrize("keys", [{"snr_db": 10.0}, {"path_loss_db": 100.0}])
def test_budgets_of_single_devices(keys: dict[str, float]) -> None:
    """Offsets in dB, repeated over the devices, on either kind of budget; the gain stays."""
    plain = RayleighConfig(**keys)
    own = RayleighConfig(**keys, device_budget_db=(0.0, -3.0, 10.0))
    args = torch.device("cpu"), torch.float64
    base, budget = link_budget([plain], 5, *args), link_budget([own], 5, *args)
    factor = torch.tensor([1.0, 10**-0.3, 10.0, 1.0, 10**-0.3], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, base.budget * factor)
    torch.testing.assert_close(budget.tx_power_w, base.tx_power_w * factor)
    assert torch.equal(budget.gain, base.gain)


class Placed(ChannelConfig):
    own_path_loss: ClassVar[bool] = True


def test_a_channel_that_knows_where_devices_are_is_physical() -> None:
    """Unless its SNR is given."""
    configs = [Placed(), Placed(snr_db=7.0)]
    budget = link_budget(configs, 1, torch.device("cpu"), torch.float64)
    assert budget.physical.tolist() == [True, False]
    assert budget.gain.tolist() == [[1.0], [1.0]]
    expected = torch.tensor([[10**12.9], [10**0.7]], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, expected)
