"""What is known of a group on air."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import linalg

from otafl.core.contracts import Group
from otafl.power.smcv import Smcv
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench


@pytest.mark.exact
@pytest.mark.parametrize("devices", [2, 3, 10])
def test_variation_does_not_depend_on_how_many_devices(
    devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symbols 1 + sqrt(2) z of signs z that are orthogonal to each other and to one have the
    variation 2, of however few devices."""
    seen: list[torch.Tensor] = []
    real = Smcv.compute_coefficients

    def coefficients(self: Smcv, state: None, link: Any) -> Any:
        seen.append(link.variation)
        return real(self, state, link)

    monkeypatch.setattr(Smcv, "compute_coefficients", coefficients)
    signs = torch.from_numpy(linalg.hadamard(16)[1 : devices + 1]).double()
    Bench().build_rig(devices, 2, {"power": "smcv"}).send(1.0 + 2.0**0.5 * signs.repeat(2, 1), 0)
    torch.testing.assert_close(seen[-1], torch.full((2, 1), 2.0, dtype=torch.float64))


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
