"""What goes wrong in a sweep harms nothing else: memory that runs out, stacks that fail, a full
disk, damaged files, another program on the same folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr
from contract.small import scenario
from support.stopped_sweeps import same

from otafl import open_results, sweeping
from otafl.core.errors import UserError
from otafl.results.files import list_parts, read_part
from otafl.running import stack_run
from otafl.running.memory import is_out_of_memory
from otafl.scenario import Scenario, expand
from otafl.sweeping import FailedStacks, stack_job, store
from otafl.sweeping.planning import hash_sources, name_points, plan

pytestmark = pytest.mark.exact

EACH: dict[str, Any] = {"training.batch_size": [1, 2, 3, 4]}
"""Four stacks of a point each."""


def short(keys: Mapping[str, Any] | None = None) -> Scenario:
    """Two rounds of one trial."""
    return scenario({"training.rounds": 2, "trials": 1} | dict(keys or {}))


def make_job(one: Scenario, folder: Path) -> stack_job.Job:
    """The job of the only stack of a sweep."""
    points = expand(one)
    (stack,) = plan(points, name_points(points, hash_sources(points)), {})
    return stack_job.Job(one, stack, folder, 0, {}, folder / "track")


def read_parts(folder: Path) -> list[xr.Dataset]:
    return [read_part(path) for path in list_parts(folder)]


def limit(monkeypatch: pytest.MonkeyPatch, most: int, error: Exception) -> list[int]:
    """Makes `run_stack` fail for more trials of points than `most`; the sizes it was asked for."""
    true, asked = stack_job.run_stack, []

    def limited(points: Any, progress: Any, trials: Any, *rest: Any) -> Any:
        asked.append(len(points) * len(trials))
        if asked[-1] > most:
            raise error
        return true(points, progress, trials, *rest)

    monkeypatch.setattr(stack_job, "run_stack", limited)
    return asked


def test_errors_that_mean_a_lack_of_memory() -> None:
    text = "DefaultCPUAllocator: can't allocate memory"
    short = (MemoryError(), RuntimeError(text), torch.OutOfMemoryError("CUDA out of memory"))
    assert all(map(is_out_of_memory, short))
    assert not any(map(is_out_of_memory, (ValueError(text), RuntimeError("mat1 and mat2"))))


def test_a_stack_that_memory_is_short_for_is_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep's result is the same to rounding, and the same command goes on so."""
    one = scenario({"sweep": {"channel.snr_db": [0, 20]}, "engine.dtype": "float64"})
    whole = sweeping.run(one)
    most = 3
    asked = limit(monkeypatch, most, MemoryError())
    result = sweeping.sweep(one, tmp_path)
    same(result, whole, tolerance=1e-9)
    assert asked[0] == 6
    sizes = [int(part.sizes["point"]) * part.sizes["trial"] for part in read_parts(tmp_path)]
    assert sorted(sizes) == sorted(size for size in asked if size <= most)
    assert sum(sizes) == 6


def test_no_memory_for_a_single_trial_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 0, MemoryError())
    with pytest.raises(UserError, match="no memory for a single trial") as raised:
        sweeping.sweep(short(), tmp_path)
    assert "engine.chunk_mb" in str(raised.value)
    with pytest.raises(UserError, match=r"no memory for 3 trials at once .* give out="):
        sweeping.run(short({"trials": 3}))


def broken(monkeypatch: pytest.MonkeyPatch, times: dict[int, int], error: Exception) -> Counter:
    """Makes the stacks of a batch size fail so many times; how often each was tried."""
    true, tried = stack_job.run_stack, Counter()

    def run(points: Any, *rest: Any) -> Any:
        size = points[0].scenario.training.batch_size
        tried[size] += 1
        if tried[size] <= times.get(size, 0):
            raise error
        return true(points, *rest)

    monkeypatch.setattr(stack_job, "run_stack", run)
    return tried


@pytest.mark.slow
def test_stacks_that_fail_for_good_are_listed_and_the_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = short({"sweep": EACH})
    tried = broken(monkeypatch, {2: 1, 3: 1}, ZeroDivisionError("by 0"))
    with pytest.raises(FailedStacks) as raised:
        sweeping.sweep(one, tmp_path)
    lines = str(raised.value).splitlines()
    assert lines[0] == "2 of 4 stacks failed; the others are finished and kept"
    assert lines[1].startswith("  batch_size=2: ZeroDivisionError: by 0 (")
    assert lines[2].startswith("  batch_size=3: ")
    trace = Path(lines[1].partition("(")[2].rstrip(")"))
    assert "Traceback" in trace.read_text()
    there = open_results(tmp_path)
    assert int(there["final_round"].notnull().sum()) == 2
    sweeping.sweep(one, tmp_path)  # tries those again alone
    assert sorted(tried.values()) == [1, 1, 2, 2]
    assert not (tmp_path / "failures").exists()


def test_the_error_of_the_only_stack_is_not_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, {4: 9}, ZeroDivisionError("by 0"))
    with pytest.raises(ZeroDivisionError):
        sweeping.sweep(short(), tmp_path)


def test_a_stack_under_lock_is_busy(tmp_path: Path) -> None:
    one = short()
    job = make_job(one, tmp_path)
    with store.hold_lock(tmp_path / "locks" / f"{job.stack.name}.lock"):
        assert stack_job.run_job(job, lambda *_: None).state == "busy"
    assert stack_job.run_job(job, lambda *_: None).state == "done"


def test_a_worker_of_other_versions_refuses(tmp_path: Path) -> None:
    one = short()
    job = replace(make_job(one, tmp_path), versions={"otafl": "0.0.1"})
    outcome = stack_job.run_job(job, lambda *_: None)
    assert (outcome.state, outcome.kind) == ("failed", "user")
    assert "0.0.1" in outcome.message


@pytest.mark.parametrize("what", ["versions", "points"])
def test_a_checkpoint_of_another_program_is_not_gone_on_from(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = stack_run.Checkpoint(tmp_path / "kept", every=1)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    points = expand(short())
    with pytest.raises(KeyboardInterrupt):
        stack_job.run_stack(points, stop, [0], kept)
    found = kept.load(points, [0])
    assert found is not None
    assert found.rounds == 1
    if what == "versions":
        monkeypatch.setattr(stack_run, "get_versions", lambda: {"otafl": "0.0.1"})
    else:
        points = expand(short({"channel.snr_db": 3}))
    assert kept.load(points, [0]) is None
