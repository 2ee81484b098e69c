"""What the engine makes of model sizes: time, joules, bits and counts go by a device's level."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine

from otafl.core.contracts import Workload
from otafl.devices.hardware import CAUSES

pytestmark = pytest.mark.exact


def test_time_joules_and_parameters_go_by_level() -> None:
    settings = {"levels": [1.0, 0.5], "momentum": 0.0}
    one = engine(
        {
            "algorithm": {"name": "heterofl", **settings},
            "devices.capacity_levels.shares": [1, 3],
            "devices.compute": {"name": "fixed", "flops_per_s": 1e3},
            "trials": 1,
        }
    )
    sizes = one.parts.algorithm.levels
    one.run_round(0)
    samples = 4 * 2
    load = Workload(2, 4, np.array([9.0]))
    flops = np.array([sizes[level].flops_fn(load).item() for level in (0, 1, 1, 1)])
    assert flops[0] > flops[1]
    joules = one.parts.clock.compute_spent_j()[0, :, CAUSES.index("compute")]
    np.testing.assert_allclose(joules / flops, joules[0] / flops[0])
    taken = one.parts.submodels.take_metrics()
    np.testing.assert_array_equal(taken["level_participants"], [[1, 3]])
    parameters = sizes[0].num_params + 3 * sizes[1].num_params
    np.testing.assert_array_equal(taken["exchanged_parameters"], [2 * parameters])
    macs = sizes[0].macs + 3 * sizes[1].macs
    np.testing.assert_array_equal(taken["training_macs"], [macs * samples])
    sent = 32.0 * parameters
    assert one.downlink_bits[0] == sent
    received_s = 32.0 * sizes[0].num_params / 1e7
    slot = one.means.take()["airtime_s"].item()
    assert one.parts.clock.get_time_s()[0] == pytest.approx(received_s + flops[0] / 1e3 + slot)


def test_a_digital_uplink_carries_what_a_device_has() -> None:
    """Of a masked group its slice alone, 32 bits a number, and airtime by that."""
    keys = {
        "algorithm": {"name": "heterofl", "levels": [1.0, 0.5], "masked_loss": False},
        "devices.capacity_levels.shares": [1, 3],
        "transport": "digital",
        "channel": {"name": "awgn", "snr_db": 0.0},
        "trials": 1,
    }
    one = engine(keys)
    one.run_round(0)
    sizes = [level.num_params for level in one.parts.algorithm.levels]
    taken = one.means.take()
    bits = 32.0 * (sizes[0] + 3 * sizes[1])
    assert taken["uplink_bits"].item() == bits
    assert taken["uplink_symbols"].item() == pytest.approx(bits)  # one bit a use at 0 dB
    codec = engine(keys | {"codec": {"name": "uniform", "bits": 8}})
    codec.run_round(0)
    whole = 8 * sizes[0] + 64
    share = 1 + 3 * sizes[1] / sizes[0]
    assert codec.means.take()["uplink_bits"].item() == pytest.approx(whole * share)
