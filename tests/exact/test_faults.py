"""Byzantine devices, refusals and the jammer, by hand.

Mutations that make a test here fail: the last devices in place of the first, one count or one scale
for all trials, rows of a group taken for rows of the cohort, a flip without its scale or its sign,
noise without the update's norm or its own taken off, norms block by block, a mask ignored, one
noise for all devices, blocks or rounds, the payload written to, a stack without attackers tampered
with, tampering after the codec or after the choice by norm, a jammer's decibels taken as they are,
or none for 0 dB; a refusal of the honest, of rows of a group for rows of the cohort, for one group
or block alone, of all or of nothing where it is not asked for, after the codec or the choice by
norm; refusals not counted, a round without updates that goes wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, equal, points, run, scenario
from torch import Tensor

from otafl.core.contracts import Broadcast, ChannelState, Cohort, Group, Payload
from otafl.core.rng import Streams
from otafl.devices.config_faults import FaultsConfig
from otafl.devices.faults import Faults, jammer_power
from otafl.engine.engine import run_stack
from otafl.scenario.errors import ScenarioError

S, K = 2, 4
DOUBLE = torch.float64
COUNT, SCALE = [1.0, 2.0], [3.0, 0.5]


def byzantine(attack: str, count: list[float] = COUNT, **settings: Any) -> Faults:
    hyper = {
        "byzantine": torch.tensor(count, dtype=DOUBLE),
        "scale": torch.tensor(SCALE, dtype=DOUBLE),
    }
    configs = [FaultsConfig(attack=attack, byzantine=int(n), **settings) for n in count]  # type: ignore[arg-type]
    return Faults(configs, Streams([4, 4], [0, 1], dtype=DOUBLE), hyper)


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


@pytest.mark.parametrize("refuse", [None, True, False])
@pytest.mark.parametrize("attack", ["nan", "scale"])
def test_what_is_not_a_number_is_refused(attack: str, refuse: bool | None) -> None:
    """If not told, only where the attack is made of it."""
    faults, rows = byzantine(attack, refuse_nonfinite=refuse), cohort()
    keep = faults.refuse(faults.tamper(payload(), rows, 0), rows)
    if refuse is False or (refuse is None and attack == "scale"):
        assert keep is None
        return
    assert keep is not None
    expected = [False, True, True, False, True] if attack == "nan" else [True] * 5
    assert keep.tolist() == expected


def test_refused_for_any_of_its_groups_and_blocks() -> None:
    """An infinity in row 1 of the third group, and in row 2 of the second, which is row 0 of the
    cohort, and one in the second block of row 4."""
    faults, rows, sent = byzantine("scale", refuse_nonfinite=True), cohort(), payload()
    sent[2].blocks["d"][1] = torch.inf
    sent[1].blocks["c"][2, 1] = -torch.inf
    sent[0].blocks["b"][4, 3] = torch.nan
    keep = faults.refuse(sent, rows)
    assert keep is not None
    assert keep.tolist() == [False, False, True, True, False]


def test_without_faults_there_are_none() -> None:
    faults, rows = byzantine("nan", [0.0, 0.0]), cohort()
    assert faults.refuse(payload(), rows) is None
    assert faults.crashes(rows, 0) is None
    assert faults.copies(rows, 0) is None
    assert faults.slowdown(np.array([0]), np.array([0]), 0) is None
    channel = ChannelState(torch.ones(S, K, 1, 1, 1, dtype=torch.complex128), torch.ones(S, K))
    assert faults.fade(channel, 0) is channel


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


NAN: dict[str, Any] = BASE | {"faults": {"byzantine": 2, "attack": "nan"}}


@pytest.mark.parametrize("transport", ["ideal", "over_the_air", "digital"])
def test_the_round_goes_on_without_the_refused(transport: str) -> None:
    """Of devices that send 1, 2, 3, 4 the last two are left."""
    keys = NAN | {"transport": transport, "channel": {"name": "awgn", "snr_db": 120.0}}
    one = run(engine(keys | {"power": "ci"}, probe=Numbered), 2)
    np.testing.assert_allclose(one.server["x"].numpy(), 2 * 3.5, rtol=1e-4)
    assert one.counts["rejected_updates"].tolist() == [4.0] * 3
    assert one.means.take()["participants"].tolist() == [2.0] * 3


def test_all_are_refused() -> None:
    one = run(engine(NAN | {"faults.byzantine": 4}, probe=Numbered), 2)
    assert one.server["x"].eq(0).all()
    assert one.counts["rejected_updates"].tolist() == [8.0] * 3


@pytest.mark.parametrize("codec", ["topk", "qsgd"])
def test_what_is_refused_does_not_reach_the_codec(codec: str) -> None:
    one = run(engine({"faults": {"byzantine": 1, "attack": "nan"}, "codec": codec}), 2)
    assert all(table.isfinite().all() for table in one.memory.values())
    assert one.server["model"].isfinite().all()


def test_what_is_not_refused_ends_the_trial() -> None:
    """As without faults, NaN in the model is recorded as divergence, and the round is known."""
    faults = {"byzantine": 1, "attack": "nan", "refuse_nonfinite": False}
    record = run_stack(points({"faults": faults}))
    at = list(record.variables["diverged_round"].ravel())
    assert at == [1.0] * 3
    record = run_stack(points({"faults": faults | {"refuse_nonfinite": None}}))
    assert np.isnan(record.variables["diverged_round"]).all()
    assert record.variables["rejected_updates"][0, 0].tolist() == [0, 1, 2, 3, 4]


def test_a_model_that_diverges_by_itself_is_still_found() -> None:
    """Refusing what is not finite keeps the server's model, and not the losses."""
    keys = {"algorithm": {"name": "fedavg", "learning_rate": 1e30}}
    for refuse in (None, True):
        record = run_stack(points(keys | {"faults": {"refuse_nonfinite": refuse}}))
        assert np.isfinite(record.variables["diverged_round"]).all()
