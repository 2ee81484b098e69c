"""Groups in slots and rules in rounds: what the server gets, what it costs, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, points, run
from support.numbered import Numbered

from otafl.core.contracts import NO_LIMITS, Group, TransmitLimits
from otafl.engine.engine import Engine
from otafl.robust.grouping import draw_groups
from otafl.scenario import ScenarioError
from otafl.uplink.bounds import Bounds

pytestmark = pytest.mark.exact


CLEAR: dict[str, Any] = {
    "data.partition": "iid",
    "training.weights": "uniform",
    "engine.dtype": "float64",
    "power": "ci",
    "channel": {"name": "awgn", "snr_db": 120.0},
    "devices.count": 7,
}
MEDIAN = {"groups": "devices", "rule": "coordinate_median"}


@torch.inference_mode()
def groups_of(one: Engine, round: int) -> np.ndarray:
    """The group of each device, [S, K]."""
    cohort = one.select_cohort(None, round)
    robust = one.parts.robust
    groups = draw_groups(cohort, robust.num_groups, round, one.parts.streams)
    return groups.view(one.num_trials, -1).numpy()


def costs(one: Engine) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in one.means.take().items()}


def test_groups_are_equal_to_one_device_and_differ_from_round_to_round() -> None:
    one = engine(CLEAR | {"robust.groups": 3})
    drawn = [groups_of(one, t) for t in range(20)]
    for groups in drawn:
        for trial in groups:
            assert sorted(np.bincount(trial, minlength=3).tolist()) == [2, 2, 3]
    assert len({groups.tobytes() for groups in drawn}) == 20
    together = np.mean([groups[:, 0] == groups[:, 1] for groups in drawn])
    assert 0.1 < together < 0.5  # 5 of 21 pairs


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_the_rule_acts_on_group_means(transport: str) -> None:
    """The median of three means of devices that send 1 to 7."""
    robust = {"groups": 3, "rule": "coordinate_median"}
    one = engine(CLEAR | {"robust": robust, "transport": transport}, probe=Numbered)
    total = np.zeros(3)
    for t in range(4):
        groups = groups_of(one, t)
        for s in range(3):
            means = [(1.0 + np.flatnonzero(groups[s] == g)).mean() for g in range(3)]
            total[s] += np.median(means)
        one.run_round(t)
        np.testing.assert_allclose(one.server["x"][:, 0].numpy(), total, atol=1e-4)


def test_groups_cost_their_channel_uses_and_each_device_one_transmission() -> None:
    """At full power a device spends the same, and the slot lasts as many times as long."""
    keys = CLEAR | {
        "power": "full",
        "csi": {"name": "pilots", "length": 2},
        "channel": {"name": "awgn", "snr_db": 10.0},
    }
    plain, grouped = run(engine(keys), 2), run(engine(keys | {"robust.groups": 3}), 2)
    first, second = costs(plain), costs(grouped)
    np.testing.assert_allclose(second["uplink_symbols"], 3 * first["uplink_symbols"])
    np.testing.assert_allclose(second["airtime_s"], 3 * first["airtime_s"])
    np.testing.assert_allclose(second["radio_j"], first["radio_j"], rtol=1e-9)
    np.testing.assert_allclose(second["side_symbols"], first["side_symbols"])
    assert (first["side_symbols"] > 0).all()
    times = [one.parts.clock.get_time_s() for one in (plain, grouped)]
    longer = 2 * 2 * np.asarray(first["airtime_s"]) / 2  # two more slots of each of two rounds
    np.testing.assert_allclose(times[1] - times[0], longer, rtol=1e-6)


def test_a_group_has_its_own_power_control() -> None:
    """Channel inversion answers to the weakest device of the group, not of all."""
    keys = {"channel": "rayleigh", "power": "ci", "output.save_link": True, "robust.groups": 2}
    one = run(engine(keys), 1)
    groups, (link,) = groups_of(one, 0), one.link
    for g in range(2):
        h, m, eta = (link[f"{name}/{g}"][:, 0].numpy() for name in ("h", "m", "eta"))
        budget = one.parts.link.budget.budget.numpy()
        with np.errstate(divide="ignore"):
            level = budget * np.abs(h) ** 2 / m
        weakest = np.where(groups == g, level, np.inf).min(1)
        np.testing.assert_allclose(eta, weakest, rtol=1e-4)


def test_the_mean_of_groups_is_the_mean_of_all_devices() -> None:
    """Of unequal weights, and of groups of unequal sizes."""
    keys = CLEAR | {
        "training.weights": "samples",
        "data.partition": {"name": "dirichlet", "alpha": 0.3},
    }
    plain = run(engine(keys, probe=Numbered), 2)
    for groups in (2, 3):
        grouped = run(engine(keys | {"robust.groups": groups}, probe=Numbered), 2)
        torch.testing.assert_close(grouped.server["x"], plain.server["x"], rtol=1e-4, atol=0.0)


@torch.inference_mode()
def test_lost_updates_have_no_weight_in_the_mean_of_their_group() -> None:
    """Devices send 1 to 7, and the first is lost, in whichever of the two groups it is."""
    one = engine(CLEAR | {"robust": {"groups": 2}, "transport": "digital"}, probe=Numbered)
    cohort, robust = one.select_cohort(None, 0), one.parts.robust
    payload = (Group({"x": 1.0 + cohort.device[:, None].double()}),)
    received, _ = robust.deliver(payload, cohort, one.draw_channel(0), 0, NO_LIMITS)
    lost = replace(received, delivered_mask=(cohort.device > 0,))
    mean = robust.aggregate(lost, lambda all_updates: all_updates, cohort).mean[0]["x"]
    np.testing.assert_allclose(mean.numpy(), 4.5, atol=1e-9)


def test_circuits_run_in_a_device_s_turn() -> None:
    limits = TransmitLimits(
        energy_budget=torch.full((1, 1), 10.0), energy_per_symbol=torch.ones(1, 1)
    )
    assert Bounds(limits, 12, turns=3).energy.item() == 6.0  # type: ignore[union-attr]
    assert Bounds(limits, 6).energy.item() == 4.0  # type: ignore[union-attr]


def test_attackers_move_the_mean_and_not_the_median() -> None:
    keys = CLEAR | {"faults": {"byzantine": 2, "attack": "scale", "scale": 1e3}}
    attacked = run(engine(keys, probe=Numbered), 1)
    assert float(attacked.server["x"].min()) > 400.0
    robust = run(engine(keys | {"robust": MEDIAN}, probe=Numbered), 1)
    np.testing.assert_allclose(robust.server["x"].numpy(), 6.0, atol=0.1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"robust.rule": "krum"}, "needs several inputs, and the server gets one sum"),
    ({"robust": {"groups": 2, "rule": "coordinate_median"}}, "is the mean of 2 inputs"),
    ({"robust": {"groups": 2, "rule": "geometric_median"}}, "lies anywhere between 2 inputs"),
    ({"robust": {"groups": 4, "rule": "trimmed_mean"}}, "drops none of 4 inputs"),
    (
        {"robust": {"groups": 4, "rule": "krum", "assumed_share": 0.25}},
        r"needs more than 2 f \+ 2 inputs",
    ),
    ({"robust.groups": 5}, "more than the 4 devices that transmit"),
    ({"robust.groups": 0}, "must be 1 or more"),
    ({"robust.groups": 2, "topology": "graph", "power": "ci"}, "no server that could apply"),
    ({"robust.groups": 2, "algorithm": "fedrlr"}, "needs plain sums"),
    ({"robust.groups": 2, "algorithm": "local_only"}, "sends no updates"),
    ({"robust.groups": 2, "power": "budget_paced"}, "plans its energy over slots"),
    ({"robust.groups": 2, "devices.protocol": "asynchronous"}, "use protocol: rounds"),
]


@pytest.mark.parametrize(("keys", "said"), REFUSED)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        points(keys)


def test_a_bound_on_epsilon_holds_in_groups() -> None:
    keys = {
        "privacy": {"clip": 1.0, "epsilon": 2.0},
        "training.weights": "uniform",
        "power": "full",
        "channel": "rayleigh",
        "engine.dtype": "float64",
    }
    found = []
    for more in ({}, {"robust.groups": 4}):
        one = run(engine(keys | more), 4)
        metrics = one.parts.link.transport.compute_metrics()
        assert float(metrics["dp_epsilon"].max()) <= 2.0
        found.append(metrics["dp_mu"])
    torch.testing.assert_close(*found, rtol=1e-3, atol=0.0)
