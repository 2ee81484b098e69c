"""Split-Mix against its looped twin, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.level_rounds import HYPER, STEPS, WIDTHS, LevelRounds
from twins import split_mix as twin
from twins.heterofl import Device, Settings
from twins.setting import minibatch, mlp

from otafl.algorithms.submodels.narrow_networks import SplitMix
from otafl.core.contracts import Cohort, Workload
from otafl.models.base import Model, unflatten
from otafl.models.layers import Conv, Linear, Norm, Relu
from otafl.models.network import Network
from otafl.models.resnet import ResNet

pytestmark = pytest.mark.twin

LEVEL = [[0, 1, 2, 2, 1], [2, 1, 2, 2, 2]]
BUDGETS = (4, 2, 1)
WHO = [
    [[0, 1, 2, 3, 4], [1, 2, 4]],
    [[2], [0, 1, 2, 3, 4]],
    [[1, 3, 4], [0, 2]],
    [[0, 2], [2, 3]],
]
"""Devices of each trial in each round. All atoms are never trained in the third."""


class Run(LevelRounds):
    """Two trials of five devices."""

    def __init__(self, model: Model | None = None, **settings: Any) -> None:
        settings = {"atom": 0.25, "levels": BUDGETS, **settings}
        self.method = SplitMix(SplitMix.Settings(**settings), model or mlp(WIDTHS), 5)
        super().__init__(self.method, LEVEL, 16 if model else WIDTHS[0])

    def of(self, who: list[list[int]]) -> Cohort:
        rows = [5 * s + k for s, row in enumerate(who) for k in row]
        return self.cohort.take(torch.tensor(rows))

    def atoms(self, trial: int) -> list[twin.Atom]:
        out = []
        for flat in self.server["model"][trial].view(self.method.atoms, -1):
            params = unflatten(flat[None], self.method.atom.shapes)
            weights = [params[f"layer{i}.weight"][0].numpy().copy() for i in range(3)]
            out.append((weights, [params[f"layer{i}.bias"][0].numpy().copy() for i in range(3)]))
        return out

    def queue(self, trial: int) -> twin.Queue:
        draws = self.streams.draw_device_uniform(
            "split_mix/queue", 0, torch.full((9,), trial), torch.arange(9), (BUDGETS[0],)
        )
        return twin.Queue(draws.argsort(dim=1, stable=True).tolist())


@pytest.mark.parametrize("masked", [True, False])
def test_equals_the_looped_twin(masked: bool) -> None:
    one = Run(masked_loss=masked, clip_norm=2.0)
    queues = [one.queue(s) for s in range(2)]
    untrained = 0
    for t, who in enumerate(WHO):
        cohort = one.of(who)
        work = one.data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]
        present = (work.count_classes() > 0).numpy()
        draws = one.streams.draw_device_uniform(
            "split_mix/others", t, cohort.trial, cohort.device, (BUDGETS[0],)
        ).numpy()
        expected, row = [], 0
        for s in range(2):
            devices, own = [], []
            for k in who[s]:
                own.append(twin.choice(queues[s].next(), BUDGETS[LEVEL[s][k]], draws[row]))
                devices.append(Device([], [minibatch(b, row) for b in batches], present[row]))
                row += 1
            step, momentum, decay = (values[s] for values in HYPER.values())
            settings = Settings(step, momentum, decay, 2.0, masked)
            expected.append(twin.one_round(one.atoms(s), devices, own, settings))
            untrained += BUDGETS[0] - len({atom for atoms in own for atom in atoms})
        loss = one.round(cohort, t)
        np.testing.assert_allclose(loss, expected[0][1] + expected[1][1], rtol=1e-12)
        for s, (atoms, _) in enumerate(expected):
            for mine, theirs in zip(one.atoms(s), atoms, strict=True):
                for a, b in zip(mine[0] + mine[1], theirs[0] + theirs[1], strict=True):
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
        assert one.server["dealt"].tolist() == [queue.dealt for queue in queues]
    assert untrained > 3


def convolutional() -> Network:
    """Of 1 x 4 x 4 pixels: a normalised convolution of 8 channels, flattened."""
    conv = Conv("a", 1, 8, cut=False), Norm("n", 8), Relu()
    return Network((1, 4, 4), (*conv, Linear("c", 8, 3, 16, last=True)))


def test_views_mix_the_first_atoms() -> None:
    one = Run(convolutional())
    views = one.method.build_views(one.server, {})
    assert list(views) == ["global", "level0", "level1", "level2"]
    atoms = one.server["model"].view(2, BUDGETS[0], -1)
    x = one.streams.draw_normal("x", 0, (32, 16))
    each, found = [], []
    for index in range(BUDGETS[0]):
        params = unflatten(atoms[:, index], one.method.atom.shapes)
        found.append(one.method.atom.moments(params, x))
        each.append(one.method.atom.logits(params | found[-1], x[:, :5]))
    assert not torch.allclose(each[0], each[1])
    for name, budget in zip(["global", *list(views)[1:]], [4, 4, 2, 1], strict=True):
        view = views[name]
        assert view.moments_fn is not None
        statistics = view.moments_fn(view.params, x)
        for part in ("n.mean", "n.variance"):
            expected = torch.stack([own[part] for own in found[:budget]], 1)
            torch.testing.assert_close(statistics[part], expected)
        mixed = view.predict_fn({**view.params, **statistics}, x[:, :5])
        torch.testing.assert_close(mixed, sum(each[:budget]) / budget)
        shared = view.predict_fn({**view.params, **statistics}, x[:1, :5])
        torch.testing.assert_close(shared[0], mixed[0])
    assert Run().method.build_views(Run().server, {})["level1"].moments_fn is None


def test_sizes_and_what_they_are_charged() -> None:
    one = Run()
    atom = one.method.atom.num_params
    assert atom == 6 * 2 + 2 + 2 * 2 + 2 + 2 * 3 + 3
    levels = one.method.levels
    assert [level.num_params for level in levels] == [4 * atom, 2 * atom, atom]
    assert [level.ratio for level in levels] == [1.0, 0.5, 0.25]
    load = Workload(2, 4, np.array([3.0]))
    flops = [level.flops_fn(load).item() for level in levels]
    assert flops == [4 * flops[2], 2 * flops[2], flops[2]]
    assert flops[2] > 2 * one.method.atom.count_training_flops(3)
    assert one.method.count_flops(load) == levels[0].flops_fn(load)
    told = one.method.broadcast(one.server, one.cohort)
    assert told.coordinates_per_row is not None
    expected = [BUDGETS[level] * atom for row in LEVEL for level in row]
    assert told.coordinates_per_row.tolist() == expected
    absent = (one.data.select_cohort(0, one.cohort).count_classes() == 0).sum(1).tolist()
    share = one.local(one.cohort, 0)[0][0].add_known_fraction().known_fraction
    for row, (reals, missing) in enumerate(zip(expected, absent, strict=True)):
        known = reals - missing * 3 * reals / atom  # two weights and a bias of each class
        assert float(share[row]) * 4 * atom == pytest.approx(known)


def test_atoms_of_the_papers_tables() -> None:
    """FedHM prints 2.75 and 4.12 million for two and three atoms of width .35 of ResNet-18."""
    config = SplitMix.Settings(atom=0.35, levels=(9, 3, 2, 1), width_rule="round")
    levels = SplitMix(config, ResNet(ResNet.Settings(name="resnet18"), (3, 32, 32), 10), 20).levels
    assert [level.num_params for level in levels] == [b * 1_373_160 for b in (9, 3, 2, 1)]
    small = SplitMix(
        SplitMix.Settings(), ResNet(ResNet.Settings(name="resnet18"), (3, 32, 32), 10), 20
    )
    assert small.atom.num_params == 176_402


def test_levels_that_do_not_decrease_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1, 2, 4, use 4, 2, 1"):
        SplitMix.Settings(levels=(1, 2, 4))
