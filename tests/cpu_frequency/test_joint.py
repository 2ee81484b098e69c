"""The joint choice of frequency and power: energy by the definition of the digital uplink's bits,
band, noise and watts.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.small import scenario
from support.paces import compute_link_budget, make_batch_hardware, make_flat_channel, make_task

from otafl.core.contracts import LinkBudget
from otafl.cpu_frequency.base import CpuFrequency, FrequencySetup
from otafl.cpu_frequency.joint import JointFrequency
from otafl.devices.hardware import Hardware
from otafl.scenario.errors import ScenarioError
from otafl.uplink.base import OrthogonalUplink

pytestmark = pytest.mark.exact


class Known:
    """Devices know their channel."""

    variance: torch.Tensor | None = None
    pilot_symbols = 0

    def estimate(self, h: torch.Tensor, gain: torch.Tensor, round: int) -> torch.Tensor:
        return h


def joint(access: str, budget: LinkBudget, made: Hardware) -> CpuFrequency:
    trials = len(budget.budget)
    uplink = OrthogonalUplink(
        access="ofdma" if access == "ofdma" else "tdma",
        gap=np.full(trials, 2.0),
        bits=lambda reals: 32.0 * reals,
        csi=Known(),
    )
    setup = FrequencySetup(made, budget, uplink)
    return JointFrequency(JointFrequency.Settings(), setup)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_joint_energy_by_definition(access: str) -> None:
    """Against a grid over t of what the issue's equations say of bits, band, noise and watts."""
    trials, n, deadline = 2, 3, np.repeat([2.0, 4.0], 3)
    budget, circuits = compute_link_budget(trials, n), 0.02
    made = make_batch_hardware(trials, n, circuit_w=circuits, efficiency=0.5, kappa=1e-28)
    given = make_task(trials, n, 1.2e9, deadline, reals=20_000)
    pace = joint(access, budget, made).choose_speed(given)
    assert pace.power is not None
    cycles, band, bits = 3e8, 1e6, 32 * 20_000
    noise = 0.1 / 10.0 / band  # watts a hertz: 10 is the SNR of 0.1 W in the whole band
    strength = given.channel.h.abs().square().sum(2).flatten().numpy()
    for row in range(trials * n):
        have = deadline[row] - 0.5
        t = np.linspace(0.02, have - cycles / 1e9, 100_001)
        own_band, own_s = (band / n, t) if access == "ofdma" else (band, t / n)
        snr = 2.0 ** (bits / (own_s * own_band)) - 1
        watts = 2.0 * snr * noise * own_band / strength[row]
        f = np.maximum(1e8, cycles / (have - t))
        joules = 1e-28 * f**2 * cycles + (watts / 0.5 + circuits) * own_s
        best = np.argmin(np.where(watts <= 0.1, joules, np.inf))
        np.testing.assert_allclose(pace.frequency_hz[row], f[best], rtol=3e-4)
        np.testing.assert_allclose(pace.power[row], watts[best] / 0.1, rtol=3e-4)


def test_joint_that_is_late_does_all_it_can() -> None:
    given = make_task(1, 2, 4e9, [1.6, 0.3], reals=100_000)
    pace = joint("tdma", compute_link_budget(1, 2), make_batch_hardware(1, 2)).choose_speed(given)
    assert pace.frequency_hz.tolist() == [1e9, 1e9]
    assert pace.power is not None
    assert pace.power.tolist() == [1.0, 1.0]


def test_several_cells_carry_at_least_what_is_planned() -> None:
    budget, made = compute_link_budget(1, 5), make_batch_hardware(1, 5)
    channel = make_flat_channel(1, 5, seed=2, cells=12)
    pace = joint("ofdma", budget, made).choose_speed(make_task(1, 5, 1.2e9, 3.0, channel=channel))
    assert pace.power is not None
    assert (pace.power < 0.9).all()
    t = 3.0 - 0.5 - 3e8 / pace.frequency_hz  # the slowest frequency alone would take longer
    cells = 10.0 * 5 / 2.0 * channel.h.abs().square().sum(2).flatten(2)[0].numpy()
    carried = t * 1e6 / 5 * np.log2(1 + pace.power[:, None] * cells).mean(1)
    assert (carried >= 32 * 10_000 * (1 - 1e-9)).all()
    assert (carried <= 32 * 10_000 * 1.5).all()


def test_joint_control_needs_a_digital_uplink() -> None:
    joint = {"devices.cpu_frequency": "joint", "devices.deadline_s": 1.0}
    for transport in ("ideal", "over_the_air", "digital", {"name": "digital", "rate": "mcs"}):
        with pytest.raises(ScenarioError, match="'joint' plans the power of transport 'digital'"):
            scenario(joint | {"transport": transport})
    peak = {"name": "digital", "constraint": "peak"}
    assert scenario(joint | {"transport": peak}).devices.cpu_frequency.name == "joint"
