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
POLICIES = registry.list_names("power")
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


def assert_equal_but_for_the_scale(scale: float, **settings: Any) -> None:
    """Single precision rounds the updates themselves, by 6e-8."""
    (mean, report), (one_mean, one) = send(scale, **settings), send(1.0, **settings)
    assert one.nmse > 0
    assert report.nmse == pytest.approx(one.nmse, rel=1e-4, abs=1e-12)
    np.testing.assert_allclose(report.energy_j, one.energy_j, rtol=1e-4)
    np.testing.assert_allclose(mean, one_mean, rtol=0, atol=1e-4 * np.abs(one_mean).max())


@pytest.mark.parametrize("power", POLICIES)
def test_policies_do_not_depend_on_the_scale(power: str) -> None:
    assert_equal_but_for_the_scale(1e-30, power=power, snr_db=10.0)
    assert_equal_but_for_the_scale(1e30, power=power, snr_db=200.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"transport": {"name": "over_the_air", "normalise": "block", "centre": True}},
        {"transport": {"name": "over_the_air", "quadrature": True}},
        {"transport": "ofdm"},
        {"transport": "reed"},
        {"transport": "type_based", "power": "tci"},
        {"impairments": {"clip_db": 3.0}},
        {"impairments": {"adc_bits": 8}},
        {"impairments": {"carrier_offset": 0.01}},
        {"impairments": {"timing_offset": 0.4}},
        {"codec": "qsgd"},
        {"codec": "compressed_sensing"},
    ],
    ids=str,
)
def test_transports_do_not_depend_on_the_scale(settings: dict[str, Any]) -> None:
    for scale in (1e-18, 1e15):
        assert_equal_but_for_the_scale(scale, **settings)


@pytest.mark.parametrize(("snr_db", "scale"), [(-100.0, 1e15), (300.0, 1e-18)])
def test_energies(snr_db: float, scale: float) -> None:
    """At equal power |p|^2 is the same for all devices, and the largest update has the whole
    budget; at full power each has."""
    _, report = send(scale, snr_db=snr_db, power="gbma")
    squares = draw_updates().square().sum(1).numpy()
    hand = WATTS * P / BANDWIDTH_HZ * squares / squares.max()
    np.testing.assert_allclose(report.energy_j, hand, rtol=1e-5)
    _, report = send(scale, snr_db=snr_db, power="full")
    np.testing.assert_allclose(report.energy_j, WATTS * P / BANDWIDTH_HZ, rtol=1e-5)


@pytest.mark.parametrize("power", ["ci", "cotaf", "cao_static", "cao_average", "smcv", "lyapunov"])
def test_inversion_at_300_db_is_exact(power: str) -> None:
    """The error is the rounding of single precision."""
    assert send(1.0, snr_db=300.0, power=power)[1].nmse < 1e-13


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


@pytest.mark.parametrize("k_factor_db", [-300.0, 300.0])
def test_k_factors_at_the_bounds(k_factor_db: float) -> None:
    """Without scattering, equal power has gain 1 for all devices, and without noise no error."""
    channel = {"name": "rician", "k_factor_db": k_factor_db}
    _, report = send(1.0, snr_db=300.0, channel=channel, power={"name": "gbma", "reference": "max"})
    assert (report.nmse < 1e-12) == (k_factor_db > 0)
