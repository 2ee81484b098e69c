"""Every kind of devices, against numbers worked by hand."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from support.made_devices import load_compute, make_hardware
from support.rounding import assert_agree

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices import compute
from otafl.devices.compute.kinds import Classes
from otafl.devices.hardware import Hardware, compute_energy_j

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("name", registry.list_names("compute"))
def test_every_kind_says_all_of_its_devices(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive where it must be, the first devices whatever follows, and a trial as in a stack."""
    monkeypatch.chdir(tmp_path)
    made = load_compute(name, tmp_path)
    many, few = make_hardware(made, 6, seed=3), make_hardware(made, 4, seed=3)
    stack = compute.build([made] * 2, 4, Streams([7, 8], [0, 0]))
    alone = compute.build([made], 4, Streams([8], [0]))
    for part in fields(Hardware):
        values = getattr(many, part.name)
        assert values.shape == (6,)
        assert values.dtype == np.float64
        assert_agree(getattr(few, part.name), values[:4])
        assert_agree(getattr(alone, part.name)[0], getattr(stack, part.name)[1])
    for positive in ("flops_per_s", "frequency_hz", "frequency_min_hz", "kappa", "efficiency"):
        assert (getattr(many, positive) > 0).all()
    assert (many.frequency_min_hz <= many.frequency_hz).all()
    assert (many.charge_j <= many.battery_j).all()
    assert made.has_frequency_scaling() >= bool((many.frequency_min_hz < many.frequency_hz).any())


def test_a_list_of_speeds_goes_to_the_devices_in_order_and_round_again() -> None:
    """Of seventy classes: no round-off in the shares may reorder them."""
    given = np.arange(1.0, 71.0)
    config = Classes.model_validate({"classes": given.tolist()})
    assert np.array_equal(make_hardware(config, 140).flops_per_s, np.tile(given, 2))


def test_classes_in_order_keep_to_their_shares_and_have_parts_of_their_own() -> None:
    config = Classes.model_validate(
        {
            "classes": [
                {
                    "flops_per_s": 1e9,
                    "share": 3,
                    "flops_per_cycle": 2,
                    "battery_j": 50,
                    "charge": 0.5,
                },
                {
                    "flops_per_s": 8e9,
                    "share": 1,
                    "kappa": 5e-27,
                    "flops_per_cycle": 16,
                    "battery_j": 10,
                },
            ],
        }
    )
    devices = make_hardware(config, 16)
    fast = devices.flops_per_s == 8e9
    assert fast.tolist() == [False, False, True, False] * 4
    assert np.where(fast, 5e-27, 1e-28).tolist() == devices.kappa.tolist()
    assert devices.frequency_hz.tolist() == [0.5e9] * 16
    assert np.where(fast, 10.0, 50.0).tolist() == devices.battery_j.tolist()
    assert np.where(fast, 10.0, 25.0).tolist() == devices.charge_j.tolist()
    assert np.where(fast, 1.0, 5.0).tolist() == devices.restart_j.tolist()


def test_a_cycle_costs_kappa_times_frequency_squared() -> None:
    """1e9 cycles at 2 GHz with 1e-28: 0.4 J. Half the frequency costs a quarter."""
    joules = compute_energy_j(1e9, np.array([2e9, 1e9, 2e9]), np.array([1e-28, 1e-28, 5e-28]))
    np.testing.assert_allclose(joules, [0.4, 0.1, 2.0], rtol=1e-12)
