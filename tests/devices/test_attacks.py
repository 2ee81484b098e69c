"""Every attack: what is sent, by looped twins, what happens on the air, what is refused.

`tests/robust/test_byzfl.py` compares with another package.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from scipy import stats
from support.rounding import assert_agree

from otafl.core import registry
from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams
from otafl.devices.attacks import compute_deviations
from otafl.devices.faults import Faults
from otafl.engine.engine import Engine
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.exact

ATTACKS = registry.list_names("attack")
DOUBLE = torch.float64
K, BYZANTINE, SCALE = 6, 3, 1.5


def cohort() -> Cohort:
    """Devices 0 to 5 of the first trial, 1, 3, 4, 5 of the second; 0, 1, 2 attack."""
    trial = torch.tensor([0] * 6 + [1] * 4)
    device = torch.tensor([0, 1, 2, 3, 4, 5, 1, 3, 4, 5])
    return Cohort.create(trial, device, torch.full((10,), 0.1, dtype=DOUBLE), (6, 4), K)


def send(attack: Any, mask: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """What rows [10, 3] have, and what is sent."""
    given = torch.randn(10, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    section = Faults.Settings(attack=attack, byzantine=BYZANTINE, scale=SCALE)
    faults = Faults([section] * 2, Streams([4, 4], [0, 1], dtype=DOUBLE))
    (sent,) = faults.tamper((Group({"x": given}),), cohort(), 0)
    return given.numpy(), sent.tensors["x"].numpy()


HONEST = (slice(3, 6), slice(7, 10))
ATTACKING = ([0, 1, 2], [6])


@pytest.mark.twin
@pytest.mark.parametrize("attack", ["a_little_is_enough", "inner_product", "mimic", "false_csi"])
def test_what_attackers_send(attack: str) -> None:
    own, sent = send(attack)
    expected = own.copy()
    for honest, rows in zip(HONEST, ATTACKING, strict=True):
        others = own[honest]
        mean, spread = others.mean(0), others.std(0, ddof=1)
        n, b = len(others) + len(rows), len(rows)
        z = stats.norm.ppf((n - b - (n // 2 + 1 - b)) / (n - b))
        for row in rows:
            expected[row] = {
                # examples: attacks with knowledge of others, and of the air
                "a_little_is_enough": mean - max(z, 0.0) * spread,
                "inner_product": -SCALE * mean,
                "mimic": others[0],
                "false_csi": -own[row],
            }[attack]
    np.testing.assert_allclose(sent, expected, rtol=1e-6)


@pytest.mark.parametrize(("n", "b", "z"), [(50, 24, 1.4261), (50, 12, 0.3360), (10, 2, 0.0)])
def test_the_shift_of_a_little_is_enough(n: int, b: int, z: float) -> None:
    found = compute_deviations(torch.tensor(float(n)), torch.tensor(float(n - b)))
    assert float(found) == pytest.approx(z, abs=1e-3)


def test_flipped_labels_change_the_attackers_update_alone() -> None:
    keys = {"transport": "digital", "engine.dtype": "float64", "training.weights": "uniform"}
    updates = []
    for more in ({}, {"faults": {"byzantine": 1, "attack": "label_flip"}}):
        one = engine(keys | more)
        cohort = one.select_cohort(None, 0)
        with torch.inference_mode():
            sent = one.parts.algorithm.broadcast(one.server, cohort)
            given = one.parts.downlink.send(sent, cohort, 0)
            payload, _ = one.training.train_cohort(given, cohort, 0)
        updates.append(payload[0].tensors["model"].view(3, 4, -1).clone())
    assert_agree(updates[0][:, 1:], updates[1][:, 1:])
    assert not torch.allclose(updates[0][:, 0], updates[1][:, 0])


def link_of(more: dict[str, Any]) -> tuple[Engine, dict[str, np.ndarray]]:
    keys = {"power": "ci", "channel": "rayleigh", "output.save_link": True, "trials": 2}
    one = run(engine(keys | more), 1)
    return one, {name: block.numpy() for name, block in one.link[0].items()}


def test_false_csi_sends_at_full_power_in_phase() -> None:
    """The powers of the others, and the receive scaling, are as without the attack."""
    _, plain = link_of({})
    one, link = link_of({"faults": {"byzantine": 1, "attack": "false_csi"}})
    power = np.abs(link["p/0"][:, 0]) ** 2 * link["m/0"][:, 0]
    budget = one.parts.link.budget.budget.numpy()
    np.testing.assert_allclose(power[:, 0], budget[:, 0], rtol=1e-5)
    np.testing.assert_allclose(link["p/0"][:, 0, 1:], plain["p/0"][:, 0, 1:], rtol=1e-5)
    np.testing.assert_allclose(link["eta/0"], plain["eta/0"], rtol=1e-5)
    gain = np.abs(link["h/0"][:, 0, 0]) * np.abs(link["p/0"][:, 0, 0]) / link["eta/0"][:, 0] ** 0.5
    np.testing.assert_allclose(link["c/0"][:, 0, 0], gain, rtol=1e-5)
    assert (gain >= 1.0 - 1e-5).all()


def test_a_false_norm_lowers_the_power_of_all() -> None:
    _, plain = link_of({})
    factor = 50.0
    fault = {"byzantine": 1, "attack": {"name": "false_norm", "factor": factor}}
    one, link = link_of({"faults": fault})
    m, h = plain["m/0"][:, 0].copy(), np.abs(plain["h/0"][:, 0])
    m[:, 0] *= factor**2
    budget = one.parts.link.budget.budget.numpy()
    np.testing.assert_allclose(link["eta/0"][:, 0], (budget * h**2 / m).min(1), rtol=1e-4)
    np.testing.assert_allclose(link["c/0"], 1.0, rtol=1e-4)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_keeps_the_power_budget(attack: str) -> None:
    """And a training with it goes on, with finite models unless NaN is sent."""
    faults = {"byzantine": 2, "attack": attack, "scale": 3.0}
    one = run(engine({"faults": faults, "power": "ci", "channel": "rayleigh"}), 2)
    # over the two rounds of the payload's mean power
    sent, budget = one.means.take()["tx_power"], one.parts.link.budget.budget
    assert (np.asarray(sent) <= budget.numpy() * (1.0 + 1e-5)).all()
    assert all(bool(block.isfinite().all()) for block in one.server.values())


REFUSED = [
    ({"transport": "digital"}, "false_csi", "misleads the power control"),
    ({"transport": "fsk_majority_vote"}, "false_norm", "misleads the power control"),
    ({"transport": "type_based", "power": "ci"}, "false_norm", "no device reports one"),
    (
        {"privacy": {"clip": 1.0}, "training.weights": "uniform"},
        "false_norm",
        "no device reports one",
    ),
]


@pytest.mark.parametrize(("keys", "attack", "said"), REFUSED)
def test_attacks_without_effect_are_refused(keys: dict[str, Any], attack: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(said)):
        scenario(keys | {"faults": {"byzantine": 1, "attack": attack}})
    scenario(keys | {"faults": {"attack": attack}})  # nobody attacks
