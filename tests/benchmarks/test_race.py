"""The race of simulators: table, works, and the two runners that need no other environment."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

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
    plain = [race.Run(ms, 2 * ms, 0.8) for ms in (100.0, 300.0, 120.0)]
    ours = [race.Run(ms, ms, share) for ms, share in ((50.0, 0.7), (60.0, 0.8), (40.0, 0.9))]
    head, rule, *rows = race.table({race.PLAIN: plain, "otafl": ours}, yardstick_ms=25.0)
    assert len(cells(head)) == len(cells(rule)) == len(cells(rows[0]))
    # times as fast: 2, 5 and 3; the medians' ratio would be 2.4
    assert cells(rows[0])[1:] == [
        *("120", "100 to 300", "240", "1.00", "1.00 to 1.00", "21%", "80.0%")
    ]
    assert cells(rows[1])[1:] == [
        *("50.0", "40.0 to 60.0", "50.0", "3.00", "2.00 to 5.00", "50%", "80.0%")
    ]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("name", "parameters", "products"),
    [
        ("logistic", 7850, 600 * 4 * 7840),
        ("mlp", 79510, 40_000 * (6 * 79_400 - 2 * 78_400)),
        ("cnn", 1_663_370, 600 * (6 * 12_273_152 - 2 * 627_200)),
        ("lenet", 62_006, 250_000 * (6 * 651_720 - 2 * 352_800)),
    ],
)
def test_all_train_the_same_network(
    race: ModuleType, name: str, parameters: int, products: int
) -> None:
    """MACs of the CNN: 28^2 25 32, 14^2 25 32 64, 3136 512, 512 10; of LeNet: 28^2 75 6,
    10^2 150 16, 400 120, 120 84, 84 10. First layers hand no gradient on, so they have two
    products, not three."""
    work = race.WORKS[name]
    scenario = load_scenario(race.scenario_of(work, 1))
    shape = (784,) if work.planes == 1 else (work.planes, 32, 32)
    ours = models.build(scenario.model, shape, 10)
    torch_module = import_module("torch_network").network(work, math.prod(shape))
    assert ours.num_params == sum(p.numel() for p in torch_module.parameters()) == parameters
    assert ours.count_training_flops(work.samples) == pytest.approx(products, rel=0.01)


@pytest.mark.exact
def test_the_loader_has_the_steps_of_a_round(race: ModuleType) -> None:
    x, y = torch.arange(100.0)[:, None], torch.arange(100)
    load = import_module("torch_network").load_batches
    drawn, epoch = (list(load(race.WORKS[name], x, y)) for name in ("logistic", "lenet"))
    assert [len(batch) for batch, _ in drawn] == [10] * 6
    assert sorted(torch.cat([labels for _, labels in epoch]).tolist()) == list(range(100))


@pytest.mark.slow
def test_a_rehearsal(race: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    samples = race.export_samples(race.WORKS["rehearsal"], tmp_path)
    racers, _ = race.find_racers(tmp_path)
    for racer in racers.values():
        run = race.run(racer, "rehearsal", 5, samples)
        assert run.ms > 0
        assert 0 <= run.accuracy <= 1
