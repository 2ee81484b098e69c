"""What is known of a group on air."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.contracts import Group
from otafl.core.rng import declare_purpose
from otafl.laws.bench import Bench
from otafl.power.smcv import Smcv
from otafl.uplink.base import deliver

SYMBOLS = declare_purpose("symbols_with_a_mean", __name__)

TRIALS, REALS = 16, 10_000


@pytest.mark.law
@pytest.mark.parametrize("devices", [2, 3, 10])
def test_variation_does_not_depend_on_how_many_devices(
    devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols 1 + sqrt(2) z of independent normal z have the variation 2, of however few devices:
    16 trials of 10,000 reals, Student's interval of false-alarm level 1e-4, and 0.002 for the
    quotient's bias."""
    seen: list[torch.Tensor] = []
    real = Smcv.compute_coefficients

    def coefficients(self: Smcv, state: None, link: Any) -> Any:
        seen.append(link.variation)
        return real(self, state, link)

    monkeypatch.setattr(Smcv, "compute_coefficients", coefficients)
    rig = Bench().build_rig(devices, TRIALS, {"power": "smcv"})
    cohort = rig.cohort
    z = rig.streams.draw_device_normal(SYMBOLS, 0, cohort.trial, cohort.device, (REALS,))
    rig.send(1.0 + 2.0**0.5 * z, 0)
    variation = seen[-1].numpy().ravel()
    assert variation.shape == (TRIALS,)
    spread = float(np.std(variation, ddof=1)) / TRIALS**0.5
    assert abs(variation.mean() - 2.0) < stats.t.isf(5e-5, TRIALS - 1) * spread + 0.002


@pytest.mark.exact
def test_devices_are_silent_without_the_receivers_knowing() -> None:
    """They count in the mean, radiate nothing, take no time, and are not heard; where all are
    silent the server takes noise for their mean, and the round is no no-op."""
    point = {"power": "pre_scaler", "channel": {"name": "rayleigh", "snr_db": -5.0}}
    rig = Bench().build_rig(3, 64, point)
    x = rig.draw_symbols(8, 0)
    channel = rig.link.channel.get_state(0)
    payload = (Group({"x": x}),)
    received, report = deliver(rig.link.transport, payload, rig.cohort, channel, 0)
    on_air = report.saved_tensors["p/0"][:, 0] != 0
    assert report.saved_tensors["active/0"].all()
    assert 0 < int(on_air.sum()) < on_air.numel()
    assert torch.equal(report.participants, on_air.sum(1).double())
    assert torch.equal(report.on_air_s > 0, on_air)
    assert torch.equal(report.energy_j > 0, on_air)
    assert torch.equal(report.delivered_mask_fns[0](), on_air)
    torch.testing.assert_close(received.group_weight[0], torch.ones(64).double())
    empty = ~on_air.any(1)
    assert empty.any()
    assert (received.mean[0]["x"][empty] != 0).all()
    assert received.any_delivered is None
