"""`over_the_air`, the uplink as one function."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.own_loop.wireless import WirelessUplink, over_the_air
from otafl.uplink.noise import draw_noise

pytestmark = pytest.mark.exact

POLICIES = ["ci", "tci"]


def updates(dtype: str = "float64", shape: tuple[int, ...] = (5, 3, 4)) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("power", POLICIES)
def test_the_report_explains_the_estimate(power: str) -> None:
    """estimate = sum c w x / W + Re z / (K W sqrt(eta)), c = Re(h p) / sqrt(eta), and z the
    noise of the named stream; nmse is its squared error over the exact mean's square."""
    x, w = updates(), np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    got, report = over_the_air(x, power=power, snr_db=10.0, weights=7 * w, seed=3, round=66)
    assert report.c is not None
    assert report.eta is not None
    np.testing.assert_allclose(report.c, (report.h * report.p).real / math.sqrt(report.eta))
    sent: Any = SimpleNamespace(index=0, num_coordinates=12)
    draw = draw_noise(Streams([3], [0], dtype=torch.float64), sent, 66)[0].numpy()
    share = w[report.active].sum()
    noise = draw.reshape(3, 4) * math.sqrt(0.5) / (5 * share * math.sqrt(report.eta))
    expected = np.einsum("k,kij->ij", report.c * w, x) / share + noise
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    exact = np.einsum("k,kij->ij", w, x)
    assert report.nmse == pytest.approx(((got - exact) ** 2).sum() / (exact**2).sum())


def test_costs_by_hand() -> None:
    """12 symbols at 2 MHz last 6 us; at full power and 23.0103 dBm (0.2 W) that is 1.2 uJ."""
    channel = {"name": "awgn", "bandwidth_hz": 2e6, "tx_power_dbm": 10 * math.log10(200)}
    _, report = over_the_air(updates(), channel=channel, power="full", snr_db=4.0)
    assert report.symbols == 12
    assert report.bits == 0
    assert report.side_symbols == 5
    assert report.airtime_s == pytest.approx(6e-6)
    np.testing.assert_allclose(report.tx_power_w, 0.2)
    np.testing.assert_allclose(report.energy_j, 1.2e-6)
    assert report.active.tolist() == [True] * 5
    np.testing.assert_allclose(report.h, 1.0)


def test_the_mean_is_of_the_kind_of_the_updates() -> None:
    half = updates("float16")
    tensor = torch.from_numpy(updates()).to(torch.bfloat16).requires_grad_()
    for x, kind in ((half, np.ndarray), (tensor, torch.Tensor)):
        got, _ = over_the_air(x, power="ci", snr_db=100.0)
        assert isinstance(got, kind)
        assert (got.dtype, got.shape) == (x.dtype, x.shape[1:])
        exact = torch.as_tensor(x).detach().double().mean(0)
        torch.testing.assert_close(torch.as_tensor(got).detach().double(), exact, rtol=0, atol=1e-2)
    assert got.requires_grad
    assert (half == updates("float16")).all()


def test_a_dict_is_one_payload() -> None:
    """The blocks side by side under one transmit scalar, one noise and one error; each comes back
    as it came in."""
    x = updates()
    named: dict[str, Any] = {"a": x[:, 0], "b": torch.from_numpy(x[:, 1:]).float()}
    got, report = over_the_air(named, power="gbma")
    assert set(got) == {"a", "b"}
    assert isinstance(got["a"], np.ndarray)
    assert got["a"].dtype == np.float64
    assert isinstance(got["b"], torch.Tensor)
    assert got["b"].dtype == torch.float32
    whole, same = over_the_air(x.reshape(5, 12), power="gbma")
    np.testing.assert_allclose(got["a"], whole[:4], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got["b"].numpy().ravel(), whole[4:], rtol=1e-5, atol=1e-6)
    assert report.nmse == pytest.approx(same.nmse, rel=1e-5)
    assert report.symbols == 12


X = updates()
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (X.astype(int), {}, "dtype torch.int64"),
    (X.tolist(), {}, "'updates' is a list"),
    (np.array(1.0), {}, "shape \\[\\]"),
    (X[:, :0], {}, "shape \\[5, 0, 4\\]"),
    ({}, {}, "number of rows"),
    ({"a": X, "b": X[:3]}, {}, "'a': 5, 'b': 3"),
    (X, {"weights": [1.0, 2.0]}, "weights must be 5"),
    (X, {"weights": [1.0, 2.0, 3.0, 4.0, -1.0]}, "-1.0"),
    (X, {"weights": np.zeros(5)}, "not all zero"),
    (X, {"weights": [1.0, 1.0, 1.0, 1.0, math.nan]}, "finite"),
    (X, {"round": -1}, "round must be a whole number"),
    (X, {"seed": -1}, "seed: got -1"),
    (X, {"power": "gmba"}, "gbma"),
    (X, {"snr_db": 3.0, "channel": {"name": "awgn", "path_loss_db": 90.0}}, "got both"),
    (
        X[0, 0],
        {},
        r"updates have shape \[4\]; expected .*, one row per device: use updates\[None\] for one d",
    ),
    (X, {"snr": 3}, "over_the_air: snr: not a setting; did you mean 'snr_db'.* \\(known: channel"),
    (
        X * np.r_[1, math.nan, 1, 1, 1][:, None, None],
        {},
        "'updates' of device 1 holds NaN.*; give the other devices' rows alone",
    ),
    ({"a": X, "b": X * np.r_[1, 1, math.inf, 1, 1][:, None, None]}, {}, "'b' of device 2 holds"),
]


def test_what_cannot_be_is_refused() -> None:
    unsaid = {}
    for x, settings, says in WRONG:
        try:
            over_the_air(x, **settings)
        except UserError as error:
            if re.search(says, str(error)):
                continue
            unsaid[says] = str(error)
        else:
            unsaid[says] = "accepted"
    assert unsaid == {}


def test_who_does_not_send_may_hold_anything() -> None:
    """NaN of a device that is left out; rows in another order than their devices."""
    x = updates()
    x[3] = math.nan
    uplink = WirelessUplink(5, snr_db=20)
    mean, _ = uplink(0, x[[0, 1, 2, 4]], senders=[0, 1, 2, 4])
    assert np.isfinite(mean).all()
    with pytest.raises(UserError, match="WirelessUplink: 'updates' of device 2 holds NaN"):
        uplink(1, x[[0, 3]], senders=[4, 2])
