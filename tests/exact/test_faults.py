"""Byzantine devices and the jammer, by hand.

Mutations that make a test here fail: the last devices in place of the first, one count or one scale
for all trials, rows of a group taken for rows of the cohort, a flip without its scale or its sign,
noise without the update's norm or its own taken off, norms block by block, a mask ignored, one
noise for all devices, blocks or rounds, the payload written to, a stack without attackers tampered
with, tampering after the codec or after the choice by norm, a jammer's decibels taken as they are,
or none for 0 dB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, equal, run, scenario
from torch import Tensor

from otafl.contracts import Broadcast, Cohort, Group, Payload
from otafl.faults import Byzantine, jammer_power
from otafl.faults_config import FaultsConfig
from otafl.rng import Streams
from otafl.scenario_errors import ScenarioError

S, K = 2, 4
DOUBLE = torch.float64
COUNT, SCALE = [1.0, 2.0], [3.0, 0.5]


def byzantine(attack: str, count: list[float] = COUNT) -> Byzantine:
    hyper = {
        "byzantine": torch.tensor(count, dtype=DOUBLE),
        "scale": torch.tensor(SCALE, dtype=DOUBLE),
    }
    config = FaultsConfig(attack=attack)  # type: ignore[arg-type]
    return Byzantine(config, Streams([4, 4], [0, 1], dtype=DOUBLE), hyper)


def cohort() -> Cohort:
    """Devices 0, 1, 3 of the first trial, 1, 2 of the second: attackers are rows 0 and 3."""
    trial, device = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 3, 1, 2])
    return Cohort.fresh(trial, device, torch.full((5,), 0.2, dtype=DOUBLE), (3, 2), K)


ROWS = torch.tensor([4, 3, 0, 3])


def payload() -> Payload:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=DOUBLE, generator=generator)

    return (
        Group({"a": random(5, 2, 3), "b": 10 * random(5, 4)}),
        Group({"c": random(4, 3)}, rows=ROWS),
        Group({"d": random(5, 1)}, route="ideal", reason="a test"),
    )


ATTACKED = ([0, 3], [1, 2, 3], [0, 3])
"""Rows of each group, whose scales are those of the trials."""
SCALES = ([3.0, 0.5], [0.5, 3.0, 0.5], [3.0, 0.5])


@pytest.mark.parametrize(("attack", "sign"), [("sign_flip", -1.0), ("scale", 1.0)])
def test_scaled(attack: str, sign: float) -> None:
    given = payload()
    sent = byzantine(attack).tamper(given, cohort(), 0)
    for before, after, rows, scales in zip(payload(), sent, ATTACKED, SCALES, strict=True):
        for name, block in before.blocks.items():
            expected = block.clone()
            for row, scale in zip(rows, scales, strict=True):
                expected[row] *= sign * scale
            assert torch.equal(after.blocks[name], expected)
        assert (after.route, after.weighting) == (before.route, before.weighting)
    for one, again in zip(given, payload(), strict=True):
        equal(one.blocks, again.blocks)


def test_gaussian() -> None:
    """Normal noise, each device's own, of `scale` times the norm of all blocks of the row."""
    streams, rows_of = Streams([4, 4], [0, 1], dtype=DOUBLE), cohort()
    sent = byzantine("gaussian").tamper(payload(), rows_of, 7)
    for g, (before, after) in enumerate(zip(payload(), sent, strict=True)):
        honest = set(range(len(next(iter(before.blocks.values()))))) - set(ATTACKED[g])
        for name, block in before.blocks.items():
            assert torch.equal(after.blocks[name][sorted(honest)], block[sorted(honest)])
        for row, scale in zip(ATTACKED[g], SCALES[g], strict=True):
            at = row if before.rows is None else int(before.rows[row])
            pair = rows_of.trial[at, None], rows_of.device[at, None]
            noise = {
                name: streams.device_normal(f"fault/{g}/{name}", 7, *pair, block.shape[1:])[0]
                for name, block in before.blocks.items()
            }
            norms = [
                np.sqrt(sum(float(block.square().sum()) for block in blocks))
                for blocks in ([b[row] for b in before.blocks.values()], noise.values())
            ]
            for name, z in noise.items():
                expected = z * scale * norms[0] / norms[1]
                torch.testing.assert_close(after.blocks[name][row], expected)


def test_gaussian_keeps_to_what_a_device_knows() -> None:
    x = torch.ones(5, 4, dtype=DOUBLE)
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]] * 5, dtype=DOUBLE)
    other = torch.ones(5, 2, dtype=DOUBLE)
    group = Group({"x": x, "y": other}, mask={"x": mask})
    (sent,) = byzantine("gaussian").tamper((group,), cohort(), 0)
    assert sent.blocks["x"][[0, 3], 2:].eq(0).all()
    for row, scale in ((0, 3.0), (3, 0.5)):
        power = sent.blocks["x"][row].square().sum() + sent.blocks["y"][row].square().sum()
        assert float(power) == pytest.approx(4 * scale**2, rel=1e-12)


def test_noise_is_independent_over_devices_rounds_and_groups() -> None:
    block = torch.ones(5, 50, dtype=DOUBLE)
    groups = (Group({"x": block, "y": block}), Group({"x": block}))
    one, other = (byzantine("gaussian", [4.0, 4.0]).tamper(groups, cohort(), t) for t in (0, 1))
    rows = [group.blocks[name] for sent in (one, other) for group in sent for name in group.blocks]
    drawn = torch.nn.functional.normalize(torch.cat(rows), dim=1)
    likeness = (drawn @ drawn.T - torch.eye(len(drawn))).abs()
    assert len(drawn) == 30
    assert float(likeness.max()) < 0.7  # 5 standard deviations of 50 numbers


def test_without_attackers_nothing_is_touched() -> None:
    given = payload()
    assert byzantine("sign_flip", [0.0, 0.0]).tamper(given, cohort(), 0) is given


def test_jammer_power() -> None:
    configs = [FaultsConfig(), FaultsConfig(jammer_db=0.0), FaultsConfig(jammer_db=20.0)]
    power = jammer_power(configs, Streams([0] * 3, range(3)))
    assert power.dtype == torch.float32
    torch.testing.assert_close(power, torch.tensor([0.0, 1.0, 100.0]))


# ---- in the engine


class Numbered(probes.Probe):
    """Device k's update is k + 1."""

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        rows = (cohort.device + 1.0).to(broadcast.blocks["x"].dtype)
        return (Group({"x": rows[:, None].repeat(1, self.width)}),)


BASE: dict[str, Any] = {"transport": "ideal", "data.partition": "iid", "engine.dtype": "float64"}


def test_swept_over_the_number_of_attackers() -> None:
    """In one stack: devices of equal weight that send 1, 2, 3, 4, the first 0, 1 or 4 of them
    doubled and turned around."""
    keys = BASE | {"faults.scale": 2.0, "sweep": {"faults.byzantine": [0, 1, 4]}, "trials": 1}
    one = run(engine(keys, probe=Numbered), 1)
    expected = torch.tensor([10.0, 7.0, -20.0], dtype=DOUBLE) / 4
    torch.testing.assert_close(one.server["x"][:, 0], expected)


def test_attackers_lie_about_their_norm_and_to_the_codec() -> None:
    """Device 0 makes itself the largest; what the codec keeps of it is what it claims."""
    keys = BASE | {
        "faults": {"byzantine": 1, "scale": 10.0},
        "devices.selection": "update_norm",
        "devices.participants": 1,
    }
    one = engine(keys, probe=Numbered)
    object.__setattr__(one.parts.link, "codec", probes.Residual())
    run(one, 1)
    (heard,) = one.parts.algorithm.heard
    assert heard.cohort.device.tolist() == [0, 0, 0]
    assert one.server["x"].tolist() == [[-10.0, 0.0]] * 3
    assert one.memory["rest"].view(3, 4, 2)[:, 0].tolist() == [[0.0, -10.0]] * 3


def test_an_attacker_keeps_to_the_power_limit() -> None:
    keys = {"power": "full", "faults": {"byzantine": 2, "attack": "scale", "scale": 1e3}}
    keys |= {"engine.dtype": "float64"}
    one = run(engine(keys), 3)
    power = one.means.take()["tx_power"]
    torch.testing.assert_close(power, one.parts.link.budget.budget.double())


def test_more_attackers_than_devices() -> None:
    text = r"faults\.byzantine: got 5, more than devices\.count \(4\); at most all devices"
    with pytest.raises(ScenarioError, match=text):
        scenario({"faults.byzantine": 5})
    assert scenario({"faults.byzantine": 4}).faults.byzantine == 4
