"""Weights w / p: unbiased over outages and truncation, with the variance of the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import load_scenario
from otafl.scenario.loading import load_points
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench, Rig

WEIGHTS = (1.0, 2.0, 3.0, 4.0)
DEVICES, TRIALS = len(WEIGHTS), 20_000
SNR = np.array([0.5, 2.0, 4.0, 8.0])
SHARE = np.array(WEIGHTS) / sum(WEIGHTS)
SIGMAS = stats.norm.isf(0.5e-4)
"""False-alarm level of 1e-4 a number, for eight or so numbers a test."""


def build(point: dict[str, Any], trials: int = TRIALS) -> Rig:
    channel = {"name": "rayleigh", "snr_db": 0.0, "device_budget_db": (10 * np.log10(SNR)).tolist()}
    point["channel"] = channel | point.pop("channel", {})
    return Bench().build_rig(DEVICES, trials, point, weights=WEIGHTS)


def send(rig: Rig, groups: tuple[Group, ...]) -> Any:
    state = rig.link.channel.get_state(0)
    return deliver(rig.link.transport, groups, rig.cohort, state, 0)[0]


def check(
    found: np.ndarray,
    w: np.ndarray,
    p: np.ndarray,
    x: np.ndarray,
    noise: float = 0.0,
    most: float = np.inf,
) -> None:
    """Its mean is that of all updates, up to the largest factor 1 / p, and its variance sum w^2 x^2
    (1 - p) / p and the noise's."""
    factor = np.minimum(1 / p, most)
    variance = ((w * x * factor) ** 2 * p * (1 - p)).sum() + noise
    assert abs(found.mean() - (w * x * p * factor).sum()) < SIGMAS * np.sqrt(variance / len(found))
    spread = found.var(ddof=1)
    kurtosis = ((found - found.mean()) ** 4).mean() / spread**2
    assert abs(spread / variance - 1) < SIGMAS * np.sqrt((kurtosis - 1) / len(found))


@pytest.mark.law
@pytest.mark.parametrize("most", [10.0, 100.0])
def test_digital_outages_of_packets_of_unequal_length(most: float) -> None:
    """p = exp(-(2^(b / (T B)) - 1) / snr), where devices 0 and 2 send two groups; T B = 80 each.
    The factor of device 0 is above 10."""
    size, more, uses = 2, 1, 80.0
    transport = {"name": "digital", "gain_threshold": 0.0, "max_symbols": DEVICES * uses}
    weighting = {"weighting": "inverse_probability", "max_inverse": most}
    rig = build({"transport": transport | weighting})
    x = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    rows = torch.arange(DEVICES * TRIALS).view(-1, DEVICES)[:, ::2].flatten()
    groups = (
        Group({"x": x.repeat(TRIALS)[:, None].expand(-1, size)}),
        Group({"x": x.repeat(TRIALS)[rows][:, None].expand(-1, more)}, row_index=rows),
    )
    received = send(rig, groups)
    bits = 32.0 * np.array([size + more, size, size + more, size])
    p = np.exp(-(2 ** (bits / uses) - 1) / SNR)
    assert p.min() < 0.1 < 0.8 < p.max()
    check(received.mean[0]["x"][:, 0].numpy(), SHARE, p, x.numpy(), most=most)
    some = SHARE[::2] / SHARE[::2].sum()
    check(received.mean[1]["x"][:, 0].numpy(), some, p[::2], x.numpy()[::2], most=most)


@pytest.mark.law
@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_digital_truncation_and_outage(access: str) -> None:
    """The larger threshold counts; in ofdma a device has n times the SNR in 1 / n of the band."""
    uses = 40.0
    transport = {"name": "digital", "gain_threshold": 0.4, "constraint": "peak", "access": access}
    transport |= {"max_symbols": DEVICES * uses, "max_inverse": 1e3}
    rig = build({"transport": transport | {"weighting": "inverse_probability"}})
    x = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    received = send(rig, (Group({"x": x.repeat(TRIALS)[:, None]}),))
    snr = SNR * (DEVICES if access == "ofdma" else 1)
    p = np.exp(-np.maximum((2 ** (32.0 / uses) - 1) / snr, 0.4))
    check(received.mean[0]["x"][:, 0].numpy(), SHARE, p, x.numpy())


@pytest.mark.law
@pytest.mark.parametrize("name", ["tci", "cotaf"])
def test_truncated_inversion(name: str) -> None:
    """p = exp(-g_th); the noise of a mean over K devices has the variance N / (K^2 eta)."""
    policy = {"tci": {"threshold": 0.5, "relative": False}, "cotaf": {"h_min": 0.5**0.5}}[name]
    transport = {"name": "over_the_air", "weighting": "inverse_probability", "centre": True}
    point = {"power": {"name": name, **policy}, "transport": transport, "channel": {"snr_db": 60.0}}
    rig = build(point)
    x = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    shape = torch.tensor([1.0, 0.2, 2.0], dtype=torch.float64)
    rows = x.repeat(TRIALS)[:, None] * shape
    received = send(rig, (Group({"x": rows}),))
    p = np.full(DEVICES, np.exp(-0.5))
    for column, factor in enumerate(shape.tolist()):
        check(received.mean[0]["x"][:, column].numpy(), SHARE, p, factor * x.numpy(), 1e-6)


@pytest.mark.exact
def test_a_device_off_air_keeps_the_others_weights() -> None:
    """In a trial where the second device is lost, the first has w / p and not its share of one."""
    transport = {"name": "over_the_air", "weighting": "inverse_probability"}
    power = {"name": "tci", "threshold": 0.5, "relative": False}
    rig = build({"transport": transport, "power": power, "channel": {"snr_db": 100.0}}, 200)
    x = torch.ones(200 * DEVICES, 3, dtype=torch.float64)
    h = rig.link.channel.get_state(0).h[:, :, 0, 0, 0]
    active = (h.abs() ** 2 >= 0.5).numpy()
    law = (active * SHARE).sum(1) / np.exp(-0.5)
    received = send(rig, (Group({"x": x}),))
    assert received.mean[0]["x"][:, 0].numpy() == pytest.approx(law, abs=1e-3)
    assert received.group_weight[0].tolist() == active.any(1).astype(float).tolist()


BASE: dict[str, Any] = {
    "name": "lost",
    "devices": {"count": 4},
    "algorithm": "fedavg",
    "model": "softmax_regression",
    "training": {"rounds": 2},
    "power": "tci",
    "transport": {"name": "over_the_air", "weighting": "inverse_probability"},
}
DIGITAL = {"name": "digital", "weighting": "inverse_probability"}


def test_runs_of_both_uplinks() -> None:
    for changes in ({}, {"transport": DIGITAL | {"max_symbols": 5e4}}):
        engine = Engine(assemble(load_points(BASE | changes)[1], [0, 1]))
        for round in range(2):
            engine.run_round(round)
        assert all(bool(value.isfinite().all()) for value in engine.server.values())


@pytest.mark.exact
def test_unknown_probabilities_are_refused() -> None:
    for changes, message in (
        ({"devices": {"count": 4, "deadline_s": 1.0}}, "upload by transport.max_symbols"),
        ({"devices": {"count": 4, "participants": 2, "selection": "best_channel"}}, "no weight"),
        ({"robust": {"groups": 2}}, "robust: no weight w / p"),
        ({"algorithm": "fedamp", "transport": DIGITAL}, "no weight w / p is known"),
        ({"algorithm": "fedrlr"}, "sums weights whose total varies, so it needs increments"),
    ):
        with pytest.raises(UserError) as error:
            load_scenario(BASE | changes)
        assert message in str(error.value)
    for changes, message in (
        ({"power": "gbma"}, "needs power: tci or cotaf"),
        ({"csi": "pilots"}, "needs csi: perfect"),
        ({"privacy": {"clip": 1.0}}, "no privacy.clip"),
        ({"transport": DIGITAL | {"rate": "mcs"}}, "needs rate: shannon, over_budget: drop"),
        ({"codec": "obda"}, "takes one weighted mean"),
        ({"devices": {"count": 4, "round_budget_j": 1e-3}}, "losses by energy bounds"),
        ({"impairments": {"interference_db": 0.0}}, "crashes or interference"),
        ({"transport": DIGITAL | {"max_symbols": 5e4}, "channel": "tdl-a"}, "only over flat"),
    ):
        with pytest.raises(UserError) as error:
            Engine(assemble(load_points(BASE | changes)[1], [0])).run_round(0)
        assert message in str(error.value)
