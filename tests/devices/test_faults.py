"""Byzantine devices, refusals and the jammer, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import equal, scenario
from support.rounding import assert_agree
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Payload
from otafl.core.rng import Streams
from otafl.devices.faults import Faults, compute_jammer_power
from otafl.scenario.errors import ScenarioError

pytestmark = pytest.mark.exact

K = 4


DOUBLE = torch.float64
COUNT, SCALE = (1, 2), (3.0, 0.5)


def byzantine(attack: Any, count: tuple[int, ...] = COUNT, **settings: Any) -> Faults:
    sections = [
        Faults.Settings(attack=attack, byzantine=n, scale=scale, **settings)
        for n, scale in zip(count, SCALE, strict=True)
    ]
    return Faults(sections, Streams([4, 4], [0, 1], dtype=DOUBLE))


def cohort() -> Cohort:
    """Devices 0, 1, 3 of the first trial, 1, 2 of the second: attackers are rows 0 and 3."""
    trial, device = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 3, 1, 2])
    return Cohort.create(trial, device, torch.full((5,), 0.2, dtype=DOUBLE), (3, 2), K)


ROWS = torch.tensor([4, 3, 0, 3])


def payload() -> Payload:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=DOUBLE, generator=generator)

    return (
        Group({"a": random(5, 2, 3), "b": 10 * random(5, 4)}),
        Group({"c": random(4, 3)}, row_index=ROWS),
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
        for name, block in before.tensors.items():
            expected = block.clone()
            for row, scale in zip(rows, scales, strict=True):
                expected[row] *= sign * scale
            assert torch.equal(after.tensors[name], expected)
        assert (after.route, after.weighting) == (before.route, before.weighting)
    for one, again in zip(given, payload(), strict=True):
        equal(one.tensors, again.tensors)


def test_gaussian() -> None:
    """Normal noise, each device's own, of `scale` times the norm of all blocks of the row."""
    streams, rows_of = Streams([4, 4], [0, 1], dtype=DOUBLE), cohort()
    sent = byzantine("gaussian").tamper(payload(), rows_of, 7)
    for g, (before, after) in enumerate(zip(payload(), sent, strict=True)):
        honest = set(range(len(next(iter(before.tensors.values()))))) - set(ATTACKED[g])
        for name, block in before.tensors.items():
            assert torch.equal(after.tensors[name][sorted(honest)], block[sorted(honest)])
        for row, scale in zip(ATTACKED[g], SCALES[g], strict=True):
            at = row if before.row_index is None else int(before.row_index[row])
            pair = rows_of.trial[at, None], rows_of.device[at, None]
            noise = {
                name: streams.draw_device_normal(f"fault/{g}/{name}", 7, *pair, block.shape[1:])[0]
                for name, block in before.tensors.items()
            }
            norms = [
                np.sqrt(sum(float(block.square().sum()) for block in blocks))
                for blocks in ([b[row] for b in before.tensors.values()], noise.values())
            ]
            for name, z in noise.items():
                expected = z * scale * norms[0] / norms[1]
                torch.testing.assert_close(after.tensors[name][row], expected)


def test_crashes_are_the_devices_own() -> None:
    """Whoever else takes part, stacked or alone; 1 for those who do not."""
    one = make_crashes((3, 3))
    for t in range(8):
        whole, some = one.draw_crashes(EVERYONE, t), one.draw_crashes(SOME, t)
        assert whole is not None
        assert some is not None
        for s, k in ((0, 7), (0, 30), (1, 7)):
            assert_agree(some[s, k], whole[s, k])
        assert (some != 1.0).sum() <= 3
    own = Cohort.create(
        torch.zeros(2, dtype=torch.int64), torch.tensor([7, 30]), torch.ones(2), (2,), MANY
    )
    alone, stacked = make_crashes((3,)).draw_crashes(own, 5), one.draw_crashes(SOME, 5)
    assert_agree(alone[0], stacked[0])  # type: ignore[index]


def test_refused_for_any_of_its_groups_and_blocks() -> None:
    """An infinity in row 1 of the third group, and in row 2 of the second, which is row 0 of the
    cohort, and one in the second block of row 4."""
    faults, rows, sent = byzantine("nan"), cohort(), payload()
    sent[2].tensors["d"][1] = torch.inf
    sent[1].tensors["c"][2, 1] = -torch.inf
    sent[0].tensors["b"][4, 3] = torch.nan
    keep = faults.select_finite(sent, rows)
    assert keep is not None
    assert keep.tolist() == [False, False, True, True, False]


def test_jammer_power() -> None:
    sections = [Faults.Settings(jammer_db=level) for level in (None, 0.0, 20.0)]
    power = compute_jammer_power(sections, Streams([0] * 3, range(3)))
    assert power.dtype == torch.float32
    torch.testing.assert_close(power, torch.tensor([0.0, 1.0, 100.0]))


def test_more_attackers_than_devices() -> None:
    text = r"faults\.byzantine: got 5; must be at most devices\.count \(4\)"
    with pytest.raises(ScenarioError, match=text):
        scenario({"faults.byzantine": 5})
    assert scenario({"faults.byzantine": 4}).faults.byzantine == 4


MANY = 50
"""Devices of two trials whose draws are compared."""


def make_crashes(seeds: tuple[int, ...]) -> Faults:
    sections = [Faults.Settings(crash_probability=0.5)] * len(seeds)
    return Faults(sections, Streams(list(seeds), range(len(seeds)), dtype=DOUBLE))


def of_many(trial: list[int], device: list[int]) -> Cohort:
    t, d = torch.tensor(trial), torch.tensor(device)
    return Cohort.create(
        t, d, torch.ones(len(t), dtype=DOUBLE), (t.tolist().count(0), t.tolist().count(1)), MANY
    )


EVERYONE = of_many([0] * MANY + [1] * MANY, [*range(MANY), *range(MANY)])
SOME = of_many([0, 0, 1], [7, 30, 7])
