"""Which points run together: by the memory they take, and by how many workers there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from contract.small import scenario, section

from otafl import sweeping
from otafl.analysis.comparison import compare
from otafl.core.errors import UserError
from otafl.data.shape import read_shape
from otafl.results import origins
from otafl.running import memory
from otafl.running.memory import MemoryCounter, MemoryNeed
from otafl.scenario import Scenario, compute_scenario_hash, expand
from otafl.sweeping import plan_file, planning
from otafl.sweeping.planning import Batch

pytestmark = pytest.mark.exact

SWEEP = {"channel.snr_db": [0, 5, 10, 15, 20, 25], "power": ["gbma", "tci"]}


def test_a_group_is_one_stack_unless_workers_want_more() -> None:
    points = expand(scenario({"sweep": SWEEP}))
    sizes = {n: [len(s.points) for s in sweeping.plan(points, n)] for n in (0, 1, 2, 3, 100)}
    assert sizes[0] == sizes[1] == [6, 6]
    assert sizes[2] == [3, 3, 3, 3]
    assert sizes[3] == [2] * 6
    assert sizes[100] == [1] * 12
    numbers = [p.index for stack in sweeping.plan(points, 2) for p in stack.points]
    assert sorted(numbers) == list(range(12))
    only = expand(scenario({"sweep": {"channel.snr_db": [0, 5, 10, 15, 20, 25]}}))
    sizes = {n: [len(s.points) for s in sweeping.plan(only, n)] for n in (0, 1, 2, 4)}
    assert sizes == {0: [6], 1: [6], 2: [3, 3], 4: [2, 2, 2]}


def test_memory_bounds_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a bound of 2 GB: 100 MB of it fixed and 300 MB a trial leave room for six."""
    monkeypatch.setattr(
        planning, "estimate_need", lambda points: MemoryNeed(100 * 2**20, 300 * 2**20)
    )
    points = expand(scenario({"sweep": SWEEP, "trials": 3}))
    stacks = sweeping.plan(points)
    assert [len(stack.points) for stack in stacks] == [2] * 6
    assert stacks[0].batches == [Batch([0, 1], [0, 1, 2])]
    many = sweeping.plan(expand(scenario({"sweep": SWEEP, "trials": 8})))
    assert [len(stack.points) for stack in many] == [1] * 12
    assert many[0].batches == [Batch([0], [0, 1, 2, 3, 4, 5]), Batch([0], [6, 7])]


def test_halves() -> None:
    assert Batch([0, 1], [4, 5, 6]).split_in_half() == [Batch([0, 1], [4, 5]), Batch([0, 1], [6])]
    assert Batch([0, 1, 2], [4]).split_in_half() == [Batch([0, 1], [4]), Batch([2], [4])]


def test_counter_counts_what_is_alive() -> None:
    with MemoryCounter() as counter:
        kept = torch.zeros(1000)
        view = kept.view(10, 100)[1:].double()  # 900 of 8 bytes
        del view
        other = torch.ones(500, dtype=torch.float64)
        assert counter.now == 4000 + 4000
        del other, kept
        assert counter.now == 0
    assert counter.peak == 4000 + 7200


def estimate_bytes(one: Scenario) -> int:
    return memory.estimate_trial(one, read_shape(one.data)).bytes


def test_need_is_measured_where_it_may_matter() -> None:
    """A wide channel takes far more than its model; a trial more takes what a trial takes."""
    point = {"channel": section("cdl-a") | {"subcarrier_groups": 64}, "devices.count": 8}
    wide = memory.estimate_need(expand(scenario(point)))
    one, four = (memory._measure_peak(expand(scenario(point))[0], range(n)) for n in (1, 4))
    assert wide.per_trial > 20 * estimate_bytes(scenario(point))
    assert wide.fixed + 4 * wide.per_trial == pytest.approx(four, rel=0.35)
    assert wide.fixed + wide.per_trial == pytest.approx(one, rel=0.05)
    flat = memory.estimate_need(expand(scenario({})))  # so small that it is not measured
    assert flat == MemoryNeed(0, estimate_bytes(scenario({})))


def test_a_digit_of_a_plan_that_changed_is_noticed(tmp_path: Path) -> None:
    one = scenario({})
    plan_file.load_or_create(one, tmp_path)
    path = tmp_path / "plan.json"
    text = path.read_text()
    for old, new in (
        ('"points": [0]', '"points": [00]'),
        ('"sha256": "', '"sha256": "0'),
        ('"sha256"', '"sha257"'),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(UserError, match="is damaged or no plan of otafl"):
            plan_file.load_or_create(one, tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"scenario_hash": 1', '{"scenario_hash": "HASH"}'])
def test_a_damaged_plan_is_named(tmp_path: Path, text: str) -> None:
    one = scenario({})
    plan_file.load_or_create(one, tmp_path)
    (tmp_path / "plan.json").write_text(text.replace("HASH", compute_scenario_hash(one)))
    with pytest.raises(UserError, match=r"plan.json: is damaged|another scenario"):
        plan_file.load_or_create(one, tmp_path)


@pytest.mark.slow
def test_the_result_says_how_many_trials_ran_side_by_side(tmp_path: Path) -> None:
    """A plan for more workers has smaller stacks, on which the last bits depend."""
    one = scenario({"training.rounds": 1, "trials": 3, "sweep": {"channel.snr_db": [0, 5, 10, 20]}})
    for workers, size in ((0, 12), (2, 6)):
        folder = tmp_path / str(workers)
        plan_file.load_or_create(one, folder, workers)
        result = sweeping.sweep(one, folder)
        (made,) = origins.read(result.attrs, ())
        assert made.points == set(range(4))
        assert made.batches == ((size, torch.get_num_threads()),)
    assert "trials side by side" in compare(tmp_path / "0", tmp_path / "2").about
