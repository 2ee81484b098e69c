"""What all channels have in common, and the link budget, worked by hand."""

from __future__ import annotations

import pytest
import torch
from support.made_channels import make_channel

from otafl.channels.base import ChannelSettings, compute_link_budget
from otafl.channels.cell import Cell
from otafl.channels.rayleigh import Rayleigh
from otafl.channels.ris import RisSettings
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.rng import Streams


@pytest.mark.exact
@pytest.mark.parametrize("name", ["rayleigh", "rician"])
def test_closed_forms_are_of_one_antenna_and_no_surface(name: str) -> None:
    assert make_channel(name, 3).has_closed_form
    assert make_channel(name, 3, speed_kmh=3.0).has_closed_form
    assert not make_channel(name, 3, antennas=2).has_closed_form
    assert not make_channel(name, 3, ris=RisSettings(elements=2)).has_closed_form


@pytest.mark.exact
@pytest.mark.parametrize("name", ["cdl-a", "umi"])
def test_a_correlation_that_follows_from_angles_is_not_given(name: str) -> None:
    with pytest.raises(ValueError, match=r"antenna_correlation: got 0\.5, but here the"):
        registry.load_settings_class("channel", name)(name=name, antenna_correlation=0.5)


def budget_of(sections: list[ChannelSettings], devices: int) -> LinkBudget:
    return compute_link_budget(sections, devices, Streams([0], [0], dtype=torch.float64))


@pytest.mark.exact
def test_physical_link_budget_by_hand() -> None:
    """20 dBm over -109 dBm is 129 dB; less 110 dB of path loss, 19 dB arrive."""
    section = Rayleigh.Settings(
        tx_power_dbm=20.0, path_loss_db=110.0, bandwidth_hz=1e6, noise_figure_db=5.0
    )
    budget = budget_of([section], 2)
    assert budget.budget.tolist() == [pytest.approx([10**12.9] * 2, rel=1e-9)]
    assert budget.gain.tolist() == [pytest.approx([1e-11] * 2, rel=1e-9)]
    assert budget.tx_power_w.tolist() == [pytest.approx([0.1] * 2)]
    assert budget.unit_power_w.item() == pytest.approx(10**-13.9, rel=1e-9)
    assert budget.unit_energy_j.item() == pytest.approx(10**-19.9, rel=1e-9)
    assert budget.bandwidth_hz.item() == 1e6
    assert budget.is_physical.tolist() == [True]


@pytest.mark.exact
def test_normalised_budgets_of_several_trials() -> None:
    """snr_db says it all; the default is 20 dB, and transmit power does not enter."""
    sections = [
        Rayleigh.Settings(snr_db=10.0),
        Rayleigh.Settings(tx_power_dbm=30.0),
        Rayleigh.Settings(snr_db=-3.0, bandwidth_hz=2e6),
    ]
    budget = budget_of(sections, 2)
    expected = torch.tensor([10.0, 100.0, 10**-0.3], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, expected[:, None].expand(3, 2))
    assert budget.gain.tolist() == [[1.0] * 2] * 3
    watts = torch.tensor([0.1, 1.0, 0.1], dtype=torch.float64)
    torch.testing.assert_close(budget.tx_power_w, watts[:, None].expand(3, 2))
    assert budget.bandwidth_hz.tolist() == [1e6, 1e6, 2e6]
    assert budget.is_physical.tolist() == [False] * 3


@pytest.mark.exact
@pytest.mark.parametrize("keys", [{"snr_db": 10.0}, {"path_loss_db": 100.0}])
def test_budgets_of_single_devices(keys: dict[str, float]) -> None:
    """Offsets in dB, repeated over the devices, on either kind of budget; the gain stays."""
    offsets = (0.0, -3.0, 10.0)
    base = budget_of([Rayleigh.Settings(**keys)], 5)
    budget = budget_of([Rayleigh.Settings(**keys, device_budget_db=offsets)], 5)
    factor = torch.tensor([1.0, 10**-0.3, 10.0, 1.0, 10**-0.3], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, base.budget * factor)
    torch.testing.assert_close(budget.tx_power_w, base.tx_power_w * factor)
    assert torch.equal(budget.gain, base.gain)


@pytest.mark.exact
def test_a_channel_that_knows_where_devices_are_is_physical() -> None:
    """Unless its SNR is given."""
    budget = budget_of([Cell.Settings(), Cell.Settings(snr_db=7.0)], 1)
    assert budget.is_physical.tolist() == [True, False]
    assert budget.gain.tolist() == [[1.0], [1.0]]
    expected = torch.tensor([[10**12.9], [10**0.7]], dtype=torch.float64)
    torch.testing.assert_close(budget.budget, expected)
