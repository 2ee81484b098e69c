"""The race of simulators: table, works, and the two runners that need no other environment."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from otafl import models
from otafl.scenario import load_scenario

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def race() -> Iterator[ModuleType]:
    """The script `race.py`; those beside it can be imported too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "race"))
        yield import_module("race")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.exact
def test_the_table_by_hand(race: ModuleType) -> None:
    plain = [race.Run(ms, 0.8) for ms in (100.0, 300.0, 120.0)]
    ours = [race.Run(ms, accuracy) for ms, accuracy in ((50.0, 0.7), (60.0, 0.8), (40.0, 0.9))]
    head, rule, *rows = race.table({race.PLAIN: plain, "otafl": ours}, yardstick_ms=25.0)
    assert len(cells(head)) == len(cells(rule)) == len(cells(rows[0]))
    # times as fast: 2, 5 and 3; the medians' ratio would be 2.4
    assert cells(rows[0])[1:] == ["120", "100 to 300", "1.00", "1.00 to 1.00", "21%", "80.0%"]
    assert cells(rows[1])[1:] == ["50.0", "40.0 to 60.0", "3.00", "2.00 to 5.00", "50%", "80.0%"]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("name", "parameters", "products"),
    [
        ("logistic", 7850, 600 * 4 * 7840),
        ("mlp", 79510, 40_000 * (6 * 79_400 - 2 * 78_400)),
        ("cnn", 1_663_370, 600 * (6 * 12_273_152 - 2 * 627_200)),
    ],
)
def test_all_train_the_same_network(
    race: ModuleType, name: str, parameters: int, products: int
) -> None:
    """MACs of the CNN: 28^2 25 32, 14^2 25 32 64, 3136 512, 512 10. First layers hand no gradient
    on, so they have two products, not three."""
    work = race.WORKS[name]
    scenario = load_scenario(race.scenario_of(work, 1))
    ours = models.build(scenario.model, (784,), 10)
    torch_module = import_module("torch_network").network(work, 784)
    assert ours.num_params == sum(p.numel() for p in torch_module.parameters()) == parameters
    assert ours.count_training_flops(work.samples) == pytest.approx(products, rel=0.01)


def test_the_plain_loop_and_ours_learn_alike(race: ModuleType, tmp_path: Path) -> None:
    measuring = import_module("measuring")
    work = replace(race.WORKS["rehearsal"], steps=10, batch=20, rate=0.3)
    with np.load(race.export_samples(work, tmp_path)) as samples:
        arrays = dict(samples)
    reached = []
    for name in ("plain", "ours"):
        laps = measuring.Laps()
        reached.append(import_module(name).race(work, 20, arrays, laps))
        times_ms = laps.ms_per_round()
        assert len(times_ms) == 20 - measuring.WARM_UP
        assert min(times_ms) > 0
    assert min(reached) > 0.8
    assert abs(reached[0] - reached[1]) < 0.05


@pytest.mark.exact
def test_as_many_devices_train_as_take_part(race: ModuleType) -> None:
    """At a step size of zero the mean of what they send is what they were sent."""
    model, steps = torch.nn.Linear(1, 4), []
    model.register_forward_hook(lambda *_: steps.append(1))
    x, y = torch.ones(8, 1), torch.arange(8) % 4
    plain = import_module("plain_loop").PlainFedAvg
    loop = plain(model, x, y, torch.arange(8).view(4, 2), steps=3, batch=1, rate=0, participants=2)
    before = model.bias.detach().clone()
    loop.round()
    assert len(steps) == 2 * 3
    torch.testing.assert_close(loop.get_trained_model().bias, before)


@pytest.mark.slow
def test_a_rehearsal(race: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    samples = race.export_samples(race.WORKS["rehearsal"], tmp_path)
    racers, _ = race.find_racers(tmp_path)
    for racer in racers.values():
        run = race.run(racer, "rehearsal", 5, samples)
        assert run.ms > 0
        assert 0 <= run.accuracy <= 1
    with pytest.raises(subprocess.CalledProcessError):
        race.run(racers["otafl"], "nothing", 5, samples)
