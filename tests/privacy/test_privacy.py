"""Clipping, transmit scales and accounting by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.marks import first_is_fast
from support.private_rig import C, K, P, S, mu, rig, rows

from otafl.core.contracts import Group, TransmitLimits
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.privacy import accounting
from otafl.privacy.mechanism import Privacy
from otafl.scenario import Point, load_scenario
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench

pytestmark = pytest.mark.exact

N = 0.5
CLIP = {"clip": C}


def test_payloads_are_clipped_to_the_norm() -> None:
    one = rig("ci", snr_db=200.0)
    x = rows(one)
    x[:3] *= 1e-3
    norm = x.norm(dim=1, keepdim=True)
    expected = torch.where(norm > C, x * C / norm, x)
    estimate, _ = one.send(x, 0)
    torch.testing.assert_close(estimate, expected.view(S, K, P).mean(1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("transport", [{}, {"normalise": "payload", "quadrature": True}])
def test_power_is_within_the_budget_and_the_bound(transport: dict[str, Any]) -> None:
    """A payload of norm C takes all of the budget at full power, a smaller one less; with the
    bound P_k = mu^2 N / (4 T d H_k)."""
    symbols = P // 2 if transport else P
    section = {"name": "over_the_air", **transport}
    free = rig(transport=section, snr_db=-30.0)
    _, report = free.send(rows(free, 9.0), 0)
    torch.testing.assert_close(report.power, free.link.budget.budget, rtol=1e-9, atol=0.0)
    assert free.link.transport.compute_metrics()["dp_limited"].tolist() == [0.0] * S
    one = rig(transport=section, privacy={"epsilon": 0.5}, channel={"antennas": 2})
    _, report = one.send(rows(one, 9.0), 0)
    state = one.link.channel.get_state(0)
    gain = state.h[..., 0, 0].abs().square().sum(2) * state.gain
    bound = accounting.compute_mu(0.5, 1e-5) ** 2 / 5
    torch.testing.assert_close(report.power, bound * N / (4.0 * symbols * gain))
    _, less = rig(transport=section, privacy={"epsilon": 0.5}).send(rows(one, 1e-3), 0)
    assert (less.power < 0.1 * report.power).all()


def test_groups_and_rounds_add_in_squares() -> None:
    """Two groups of one symbol power count sum_t (2 C g)^2 / N each."""
    one = rig("gbma", channel={"name": "awgn"})
    cohort, state = one.cohort, one.link.channel.get_state(0)
    blocks = [rows(one), rows(one)[:, :4]]
    payload = tuple(Group({"x": block}) for block in blocks)
    for round in range(3):
        deliver(one.link.transport, payload, cohort, state, round)
    # full power at gain 1: g^2 = P d / C^2 in a group of d symbols
    law = np.sqrt(3 * 4.0 * 10.0 * (P + 4) / N)
    np.testing.assert_allclose(mu(one), law, rtol=1e-9)


def test_what_is_left_is_for_those_who_were_silent() -> None:
    """Trials in which nobody has sent for two of five rounds have five thirds of an even part."""
    even, left = (rig(privacy={"epsilon": 0.5, "split": split}) for split in ("even", "left"))
    bound = accounting.compute_mu(0.5, 1e-5) ** 2
    for one, share in ((even, bound / 5), (left, bound / 3)):
        one.send(rows(one), 2)
        np.testing.assert_allclose(mu(one) ** 2, share, rtol=1e-9)
        measured = one.link.transport.compute_metrics()
        assert measured["dp_limited"].tolist() == [1.0] * S
    for round in (3, 4):
        left.send(rows(left), round)
    np.testing.assert_allclose(mu(left) ** 2, bound, rtol=1e-9)
    told = left.link.transport.compute_metrics()["dp_epsilon"].numpy()
    np.testing.assert_allclose(told, 0.5, rtol=1e-6)


def test_a_checkpoint_has_the_accounts() -> None:
    one, other = rig(privacy={"epsilon": 1.0}), rig(privacy={"epsilon": 1.0})
    one.send(rows(one), 0)
    other.link.transport.load_state_dict(one.link.transport.state_dict())
    for made in (one, other):
        made.send(rows(made), 1)
    for name, value in one.link.transport.compute_metrics().items():
        torch.testing.assert_close(
            other.link.transport.compute_metrics()[name], value, rtol=0, atol=0
        )


SAMPLED = {
    "devices": {"count": K, "selection": {"name": "poisson", "probability": 0.1}},
    "training": {"rounds": 5, "weights": "uniform"},
}


def test_sampled_devices_pay_whether_they_are_drawn_or_not() -> None:
    """The device that is never on air has the best channel; with a bound, full power takes all of
    it."""
    for epsilon, snr_db in ((None, -35.0), (0.5, -20.0)):
        scenario = {"privacy": {"clip": C, "epsilon": epsilon}, **SAMPLED}
        channel = {"name": "awgn", "snr_db": snr_db, "device_budget_db": [9, 0, 0, 0]}
        scenario |= {"channel": channel}
        one = Bench().build_rig(K, S, scenario | {"power": "full"}, senders=[1, 2])
        for round in range(5):
            one.send(rows(one), round)
        measured = {n: v.tolist()[0] for n, v in one.link.transport.compute_metrics().items()}
        if epsilon is None:
            mu2 = 5 * 4.0 * 10.0**-2.6 * P / N
            assert measured["dp_mu"] == pytest.approx(np.sqrt(mu2), rel=1e-6)
            law = accounting.compute_sampled_epsilon(((np.sqrt(mu2 / 5), 5),), 0.1, 1e-5, True)
            assert measured["dp_epsilon"] == pytest.approx(law, rel=1e-5)
            assert law < 0.5 * accounting.compute_epsilon(np.sqrt(mu2), 1e-5)
        else:
            assert 0.98 * epsilon < measured["dp_epsilon"] <= epsilon


def test_epsilon_over_fading_is_little_above_that_of_the_worst_device() -> None:
    """dp-accounting composes the rounds of each device by their own mu; counting all mu of a level
    as its upper end told 12 % more."""
    pld = pytest.importorskip("dp_accounting.pld")
    dp = pytest.importorskip("dp_accounting")
    section = Privacy.Settings(clip=C)
    account = Privacy([section], 30, [0.02], K, rig().streams)
    mu2 = torch.from_numpy(np.random.default_rng(0).exponential(1.0, (30, 1, K)))
    ones = torch.ones(1, K, dtype=torch.float64)
    for round, one in enumerate(mu2):
        account.limit_power(ones, one * N / (4.0 * P), P, round, ones > 0, TransmitLimits())
    found = float(account.compute_metrics()["dp_epsilon"])
    exact = 0.0
    for of_device in mu2[:, 0].sqrt().T.tolist():
        accountant = pld.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE, accounting.INTERVAL)
        for one in of_device:
            accountant.compose(dp.PoissonSampledDpEvent(0.02, dp.GaussianDpEvent(2.0 / one)))
        exact = max(exact, accountant.get_epsilon(1e-5))
    assert exact <= found < 1.06 * exact


def test_a_row_that_is_not_finite_is_sent_as_zeros() -> None:
    one, other = rig("ci", snr_db=200.0), rig("ci", snr_db=200.0)
    x, zeros = rows(one), rows(one)
    x[0, 3], x[1, 2] = torch.nan, torch.inf
    zeros[:2] = 0.0
    found, expected = one.send(x, 0)[0], other.send(zeros, 0)[0]
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("routes", [{"w": "uplink", "b": "ideal"}, {"b": "ideal"}])
def test_a_group_on_the_ideal_route_is_refused(routes: dict[str, Any]) -> None:
    one = rig()
    x = rows(one)
    payload = tuple(Group({n: x}, route=route, reason="-") for n, route in routes.items())
    with pytest.raises(UserError, match=r"^privacy\.clip: the algorithm sends 'b' on the ideal"):
        deliver(one.link.transport, payload, one.cohort, one.link.channel.get_state(0), 0)


@pytest.mark.parametrize("adversary", ["curious", "honest"])
def test_all_servers_that_hear_a_device_count(adversary: str) -> None:
    """Without fading a device arrives at its own server with gain 1, at each of the six others
    with 1/10; honest servers have what the phases there leave of it."""
    cells = {"name": "cells", "servers": 7, "cross_gain_db": -10.0}
    point = {
        "channel": {"name": "awgn", "snr_db": 10.0},
        "power": "gbma",
        "privacy": {"clip": C, "adversary": adversary},
        "topology": cells,
    }
    one = Bench().build_rig(K, 1, point)
    one.send(rows(one), 0)
    law = 4.0 * 10.0 * P / N * (1.0 + 6 * 0.1)
    if adversary == "curious":
        np.testing.assert_allclose(mu(one) ** 2, law, rtol=1e-6)
    else:
        assert (mu(one) ** 2 <= law * (1.0 + 1e-6)).all()


@pytest.mark.parametrize(
    "channel", first_is_fast([{"name": "rayleigh", "antennas": 2}, {"name": "umi"}])
)
@pytest.mark.parametrize("split", ["even", "left"])
def test_a_bound_is_kept_by_all_servers_together(channel: dict[str, Any], split: str) -> None:
    """Devices of full power take what the bound leaves them, the strongest of each server all."""
    gain = None if channel["name"] == "umi" else -10.0
    point = {
        "channel": channel,
        "power": "full",
        "privacy": {"clip": C, "epsilon": 2.0, "split": split},
        "topology": {"name": "cells", "servers": 7, "cross_gain_db": gain},
        "training": {"rounds": 3},
    }
    one = Bench().build_rig(K, 1, point)
    for round in range(3):
        one.send(rows(one), round)
    np.testing.assert_allclose(mu(one), accounting.compute_mu(2.0, 1e-5), rtol=1e-6)


def put_together(**sections: Any) -> None:
    """Put a scenario together, and send a payload of 10 symbols with its bound."""
    assemble([Point(0, {}, load_scenario({"name": "x", **sections}))], [0])
    privacy, rounds = sections["privacy"], sections.get("training", {}).get("rounds", 5)
    one = rig(privacy=privacy, rounds=rounds)
    one.send(rows(one), 0)


def drawn(**devices: Any) -> dict[str, Any]:
    """SAMPLED with more of the section `devices`."""
    return SAMPLED | {"devices": SAMPLED["devices"] | devices}


BOUND = {"clip": C, "epsilon": 1.0}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"privacy": {"epsilon": 1.0}}, "privacy.epsilon: needs privacy.clip"),
    (
        {"privacy": CLIP, "transport": "digital"},
        "privacy.clip: transport 'digital' does not account for",
    ),
    (
        {"privacy": CLIP, "transport": {"name": "over_the_air", "centre": True}},
        "transport.centre: true reveals to the server the means",
    ),
    (
        {"privacy": CLIP, "algorithm": "fedrlr"},
        "algorithm.bias_mode: ideal reveals to the server the bi",
    ),
    (
        {"privacy": CLIP, "algorithm": "heterofl"},
        "algorithm.masked_loss: true reveals to the server which",
    ),
    (
        {"privacy": CLIP, "faults": {"byzantine": 1, "attack": "nan"}},
        "faults.attack: a device that does not send an update",
    ),
    (
        {"privacy": CLIP, "devices": {"selection": "update_norm"}},
        "devices.selection: 'update_norm'",
    ),
    ({"privacy": CLIP, "devices": {"round_budget_j": 1.0}}, "devices.round_budget_j: bounds on en"),
    (
        {"privacy": CLIP, "devices": {"compute": {"name": "phone", "battery": True}}},
        "devices.compute: bounds on energy make transmissions",
    ),
    ({"privacy": CLIP, "power": "smcv"}, "power: 'smcv' needs the variation of payloads"),
    ({"privacy": BOUND, "power": "tci"}, "power: 'tci' does not keep the power budget in every"),
    ({"privacy": BOUND, "power": "pre_scaler"}, "power: 'pre_scaler' plans with the whole power"),
    ({"privacy": BOUND, "csi": "pilots"}, "csi: with 'pilots' devices do not know their channels"),
    ({"privacy": CLIP, **SAMPLED}, "power: 'gbma' sets a device's power by the participants"),
    (
        {"privacy": CLIP, **SAMPLED, "power": "full", "training": {"weights": "samples"}},
        "training.weights: 'samples' scales transmissions",
    ),
    *(
        ({"privacy": CLIP, **drawn(**{key: value}), "power": "full"}, said)
        for key, value, said in (
            ("protocol", "asynchronous", "devices.protocol: 'asynchronous' lets a device send in"),
            ("late", "next", "devices.late: 'next' lets a device send in a slot that it was not"),
            ("senders", 2, "devices.senders: got 2, which makes a transmission depend on other d"),
        )
    ),
    (
        {"privacy": {"clip": C, "split": "left"}, **SAMPLED, "power": "full"},
        "privacy.split: 'left' depends on earlier rounds",
    ),
    (
        {"privacy": CLIP | {"epsilon": 1e-6, "delta": 1e-12}, "training": {"rounds": 1000}},
        "privacy.epsilon: got 1e-06 at delta 1e-12, which over 1000 rounds",
    ),
]


@pytest.mark.parametrize(("sections", "said"), REFUSED)
def test_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as raised:
        put_together(**sections)
    assert said in str(raised.value)


def test_energy_that_is_left_is_refused() -> None:
    one = rig()
    limits = TransmitLimits(energy_budget=torch.ones(S, K, dtype=torch.float64))
    state = one.link.channel.get_state(0)
    with pytest.raises(UserError, match=r"^devices.compute: bounds on energy"):
        deliver(one.link.transport, (Group({"x": rows(one)}),), one.cohort, state, 0, limits)
