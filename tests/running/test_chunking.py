"""How many devices are worked on together: set, measured once, or by default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from contract.small import close, engine, run, scenario, scores

from otafl.engine.local_training import CHUNK_MB, MIN_ROWS, count_rows_within
from otafl.running import chunking
from otafl.scenario import Point, expand

pytestmark = pytest.mark.exact


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Every run is long enough, the machine idle, its cache empty; the measurements made."""
    made: list[str] = []

    def measured(points: list[Point], budget_s: float) -> float:
        made.append(points[0].scenario.algorithm.name)
        return 8.0

    monkeypatch.setenv(chunking.CACHE_DIR, str(tmp_path))
    monkeypatch.setattr(chunking, "MIN_S", 0.0)
    monkeypatch.setattr(chunking, "is_busy", lambda: False)
    monkeypatch.setattr(chunking, "measure_chunk_mb", measured)
    return made


def chosen(keys: dict[str, Any] | None = None) -> tuple[float | None, list[str]]:
    told: list[str] = []
    return chunking.choose_chunk_mb(expand(scenario(keys or {})), told.append), told


def test_what_is_set_holds(long: list[str]) -> None:
    assert chosen({"engine.chunk_mb": 3.0}) == (3.0, [])
    assert long == []


def test_measured_once_for_a_method_and_a_model(long: list[str]) -> None:
    found, told = chosen()
    assert found == 8.0
    assert "engine.chunk_mb: 8 is best here for fedavg" in told[0]
    assert str(chunking.get_cache_path()) in told[0]
    assert chosen() == (8.0, [])
    assert chosen({"seed": 5, "channel.snr_db": 3.0}) == (8.0, [])
    assert long == ["fedavg"]
    chosen({"algorithm": "scaffold"})
    chosen({"model": {"name": "mlp", "hidden": [7]}})
    chosen({"training.batch_size": 3})
    assert long == ["fedavg", "scaffold", "fedavg", "fedavg"]


def test_not_on_a_busy_machine(long: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "is_busy", lambda: True)
    assert chosen() == (None, [])
    assert not chunking.get_cache_path().exists()
    monkeypatch.setattr(chunking, "is_busy", lambda: False)
    chosen()
    monkeypatch.setattr(chunking, "is_busy", lambda: True)
    assert chosen()[0] == 8.0
    assert long == ["fedavg"]


def test_a_short_run_is_not_measured(long: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "MIN_S", 0.25)
    assert chosen() == (None, [])
    assert chosen({"training.rounds": 10**9})[0] == 8.0


def test_busy_is_by_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking.os, "cpu_count", lambda: 4)
    for load, expected in ((0.5, False), (1.9, False), (2.1, True)):
        monkeypatch.setattr(chunking.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert chunking.is_busy() is expected


HOSTILE = ["", "[", "[]", "7", '{"fedavg": "x"}', '{"a": -1}', '{"a": NaN}', "[" * 10_000, "\0"]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_damaged_cache_is_measured_anew(text: str, long: list[str]) -> None:
    chunking.get_cache_path().write_text(text)
    assert chosen()[0] == 8.0
    assert list(json.loads(chunking.get_cache_path().read_text()).values()) == [8.0]


def test_a_cached_size_that_nobody_measures_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "chunks.json").write_text('{"a": 1e9, "b": 8, "c": 0, "d": -1}')
    assert chunking._read(tmp_path / "chunks.json") == {"b": 8.0}


def test_a_cache_that_cannot_be_written(long: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What would not be found again is not taken: a repeat is equal bit by bit."""
    monkeypatch.setenv(chunking.CACHE_DIR, "/dev/null/nowhere")
    assert chosen() == (None, [])


def test_larger_ones_only_where_they_are_faster() -> None:
    assert chunking.find_fastest([(2.0, 1.0), (4.0, 0.5), (8.0, 0.49), (16.0, 0.7)]) == 4.0
    assert chunking.find_fastest([(2.0, 1.0), (4.0, 0.9), (8.0, 0.4)]) == 8.0


def test_measured_on_local_work() -> None:
    """Of a model of which two devices fill the smallest size."""
    keys = {"model": {"name": "mlp", "hidden": [2000]}, "devices.count": 6, "trials": 2}
    found = chunking.measure_chunk_mb(expand(scenario(keys)), 60.0)
    assert found in chunking.CANDIDATES_MB["cpu"]
    assert (
        chunking.measure_chunk_mb(expand(scenario()), 60.0) is None
    )  # all devices fit the smallest
    little = expand(scenario(keys | {"engine.memory_gb": 1e-6}))
    assert chunking.measure_chunk_mb(little, 60.0) is None


def test_small_models_are_measured_on_many_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four devices with such a model have room in the smallest size."""
    points = expand(scenario({"model": "softmax_regression", "trials": 150}))
    assert chunking.measure_chunk_mb(points, 60.0) in chunking.CANDIDATES_MB["cpu"]
    monkeypatch.setattr(chunking, "MAX_ROWS", 64)
    assert chunking.measure_chunk_mb(points, 60.0) is None


def test_rows_of_a_chunk() -> None:
    assert count_rows_within(None, 1) == CHUNK_MB["cpu"] * 2**20
    assert count_rows_within(None, 1, "cuda") == CHUNK_MB["cuda"] * 2**20
    assert count_rows_within(None, 2**30) == MIN_ROWS
    assert (count_rows_within(1.0, 2**18), count_rows_within(1.0, 2**21)) == (4, 1)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedrlr", "pfedbred"])
def test_results_do_not_depend_on_it(algorithm: str) -> None:
    """But for rounding in single precision."""
    keys = {"algorithm": algorithm, "engine.dtype": "float32", "devices.count": 5}
    whole = scores(run(engine(keys | {"engine.chunk_mb": 1000}), 2))
    for chunk_mb in (1e-6, 0.02, 0.1):
        close(scores(run(engine(keys | {"engine.chunk_mb": chunk_mb}), 2)), whole, 1e-5)
