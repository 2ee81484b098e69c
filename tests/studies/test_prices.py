"""Prices of packets in a study are what the simulation charges."""

from __future__ import annotations

import numpy as np
import pytest

import otafl
from studies.analog_vs_digital import uplink_costs


@pytest.mark.slow
def test_packets_are_priced_as_the_simulation_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same packets arrive at each SNR and access; costs are in proportion to their bits."""
    digital = {"name": "digital", "gain_threshold": 0.3, "constraint": "peak"}
    ofdma = digital | {"access": "ofdma", "shares": "active"}
    scenario = {
        "name": "packets",
        "data": {"name": "digits", "partition": "iid", "validation": 0.1},
        "algorithm": {"name": "fedavg", "learning_rate": 0.1},
        "channel": {"name": "rayleigh", "bandwidth_hz": 1e6, "tx_power_dbm": 20},
        "signalling": {"charge": True, "sync_symbols": 64, "feedback_symbols": 8},
        "devices": {"count": 5},
        "training": {"rounds": 30, "local_steps": 5, "batch_size": 20, "eval_every": 5},
        "trials": 2,
        "sweep": {"transport": [digital, ofdma], "channel.snr_db": [-20, 20]},
    }
    sparse = {"name": "topk", "keep": 0.1, "position_code": "enumerative", "value_bits": 4}
    whole = otafl.run(scenario | {"model": {"name": "mlp", "hidden": [16]}, "codec": sparse})
    fades = otafl.run(scenario | {"model": "softmax_regression", "codec": "obda"})
    first = whole.isel(transport=0, snr_db=0)
    for name in ("participants", "uplink_bits"):
        assert (whole[name] == first[name]).isel(round=slice(1, None)).all(), name
    for access in range(2):
        one, sent = whole.isel(transport=access), fades.isel(transport=access)
        sent = sent.assign(tx_energy_j=sent["tx_energy_j"].sum("device"))
        monkeypatch.setattr(uplink_costs, "TARGET", 0.6)
        monkeypatch.setattr(uplink_costs, "CHOOSE", 0.5)
        _, cost, rounds = uplink_costs.compute_prices(first, sent)
        for trial in range(2):
            there = one.isel(trial=trial).sel(round=rounds[trial])
            energy = there["tx_energy_j"].sum("device")
            np.testing.assert_allclose(cost[0][:, trial], there["airtime_s"], rtol=1e-6)
            np.testing.assert_allclose(cost[1][:, trial], energy, rtol=1e-6)
