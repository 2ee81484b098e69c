"""Which trials of which points run together, and under which names they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from contract.small import scenario

from otafl.running.memory import estimate_trial
from otafl.scenario import Scenario, expand, load_scenario
from otafl.sweeping.planning import Stack, hash_sources, name_points, plan, select_missing

pytestmark = pytest.mark.exact

SNRS = {"channel.snr_db": [0, 5, 10, 15, 20, 25]}
BOTH = SNRS | {"power": ["gbma", "tci"]}


def stacks_of(one: Scenario, sizes: dict[str, int] | None = None) -> list[Stack]:
    points = expand(one)
    return plan(points, name_points(points, hash_sources(points)), sizes or {})


def sized(trials_at_once: float, **keys: object) -> Scenario:
    """A sweep over `BOTH` with memory for so many trials of points at once."""
    small = scenario({"sweep": BOTH, **keys})
    each = estimate_trial(small)
    return scenario({"sweep": BOTH, **keys, "engine.memory_gb": trials_at_once * each / 2**30})


@pytest.mark.parametrize(
    ("at_once", "points", "trials"),
    [
        (1e6, [6, 6], [[0, 1, 2]]),
        (6.1, [2] * 6, [[0, 1, 2]]),
        (2.1, [1] * 24, [[0, 1], [2]]),
        (0.1, [1] * 36, [[0], [1], [2]]),
    ],
)
def test_memory_bounds_a_stack(at_once: float, points: list[int], trials: list[list[int]]) -> None:
    """Points of one group run together, whole if they fit, and each row is in one stack."""
    one = sized(at_once)
    stacks = stacks_of(one)
    assert [len(stack.points) for stack in stacks] == points
    assert sorted({tuple(stack.trials) for stack in stacks}) == [tuple(own) for own in trials]
    rows = [row for stack in stacks for row in stack.rows]
    assert len(rows) == len(set(rows)) == 36
    assert len({stack.name for stack in stacks}) == len(stacks)


def test_names_depend_on_the_point_alone() -> None:
    """Neither on other points nor on the number of trials; but on every other key."""

    def names(keys: dict[str, object]) -> list[str]:
        points = expand(scenario(keys))
        return name_points(points, hash_sources(points))

    all_names = names({"sweep": SNRS})
    assert len(set(all_names)) == 6
    assert names({"sweep": {"channel.snr_db": [25, 5]}, "trials": 7}) == [
        all_names[5],
        all_names[1],
    ]
    for key in ("seed", "training.rounds", "devices.count"):
        assert not set(names({"sweep": SNRS, key: 3})) & set(all_names), key


def test_missing_are_the_rows_that_nobody_holds() -> None:
    (stack,) = stacks_of(scenario({"sweep": {"channel.snr_db": [0, 20]}}))
    first, second = stack.names
    held = {(first, 0), (first, 1), (second, 0)}
    missing = select_missing([stack], held)
    assert [(one.names, one.trials) for one in missing] == [([first], [2]), ([second], [1, 2])]
    assert select_missing([stack], stack.rows) == []
    assert [one.name for one in select_missing([stack], set())] == [stack.name]


def test_each_point_has_the_files_that_it_names(tmp_path: Path) -> None:
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in paths:
        torch.save({"weight": torch.zeros(2, 2)}, path)
    starts = [{"name": "file", "path": str(path)} for path in paths]
    swept = load_scenario({"name": "x", "sweep": {"model.start": starts}})
    found = hash_sources(expand(swept))
    assert ["a.pt" in "".join(one) for one in found] == [True, False]
    assert ["b.pt" in "".join(one) for one in found] == [False, True]


def test_folders_of_data_with_the_same_name_are_told_apart() -> None:
    """In whatever order an axis has them: the parts of one are not taken for the other's."""

    def named(*folders: str) -> list[str]:
        data = {"name": "hf", "dataset": "/a/flowers"}
        tree = {"name": "x", "data": data, "sweep": {"data.dataset": [*folders]}}
        points = expand(load_scenario(tree))
        return name_points(points, hash_sources(points))

    one, other = named("/a/flowers", "/b/flowers")
    assert named("/b/flowers", "/a/flowers") == [other, one] != [one, other]
