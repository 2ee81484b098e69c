"""Aggregation of very small and very large updates, and at very high SNR, in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otafl
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.own_loop.reports import UplinkReport

pytestmark = pytest.mark.exact

K, P = 6, 60
WATTS, BANDWIDTH_HZ = 0.1, 1e6  # of the default channel


def draw_updates() -> Tensor:
    """Updates of unequal powers with a common part."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.3, 1.3, (K, 1)) * rng.standard_normal((K, P)) + rng.standard_normal(P)
    return torch.from_numpy(x)


def send(scale: float, **settings: Any) -> tuple[np.ndarray, UplinkReport]:
    """Return the estimate over the scale of the updates, and the report."""
    updates = (scale * draw_updates()).float()
    mean, report = otafl.over_the_air(updates, round=1, **{"snr_db": 10.0, **settings})
    return mean.double().numpy() / scale, report


@pytest.mark.parametrize("power", ["gbma", "ci", "tci", "cao_average"])
def test_error_with_delayed_estimates(power: str) -> None:
    """The saved h, p and eta give the error, though the estimate's correlation is -0.4:
    a_k = c_k / K_a - 1 / K with c_k = Re(h_k p_k) / sqrt(eta), beside a noise 200 dB down."""
    channel = {"name": "rayleigh", "speed_kmh": 3.0, "round_interval_s": 0.0626}
    own = registry.load_component("power", power).example_without_noise
    _, report = send(1.0, snr_db=200.0, channel=channel, csi="delay", power={"name": power, **own})
    active = np.asarray(report.active)
    c = (report.h * report.p).real / np.sqrt(report.eta) * active
    x = draw_updates().float().double().numpy()
    error = (c / active.sum() - 1.0 / K) @ x
    hand = (error**2).sum() / (x.mean(0) ** 2).sum()
    assert report.nmse == pytest.approx(hand, rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"channel": {"name": "rayleigh", "device_budget_db": [0.0, 300.0]}},
        {
            "channel": {"name": "rayleigh", "path_loss_db": 90.0, "tx_power_dbm": 250.0},
            "snr_db": None,
        },
    ],
)
def test_budgets_beyond_single_precision_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"channel: .* from -300 to 300 dB .* device_budget_db"):
        send(1.0, **settings)
