"""Results, models, checkpoints and finished batches as otafl 0.1.0 wrote them before files had
checksums (`frozen/`): they open, load and are resumed from, now and in later versions.

`frozen/whole.nc` and its models are of `otafl run`; `frozen/interrupted` is the folder of a sweep
of the same scenario, stopped after round 3 of the last of four batches, with a checkpoint a round.
"""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import otafl
from otafl import open_results, sweeping
from otafl.results import models as trained
from otafl.results import plain_data
from otafl.running import checkpoints
from otafl.scenario import load_scenario
from otafl.sweeping import stack_job

pytestmark = pytest.mark.exact

FROZEN = Path(__file__).with_name("frozen")
RTOL = 1e-3
"""Of float32 sums on another processor."""


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A copy of the files, unpacked."""
    folder = tmp_path / "frozen"
    shutil.copytree(FROZEN, folder)
    for path in sorted(folder.rglob("*.xz")):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    return folder


def close(one: xr.Dataset, other: xr.Dataset) -> None:
    assert set(one.data_vars) == set(other.data_vars)
    for name in set(one.data_vars) - {"wall_time_s"}:
        np.testing.assert_allclose(one[name], other[name], rtol=RTOL, atol=1e-9, err_msg=name)


def test_results_open(frozen: Path) -> None:
    whole = open_results(frozen / "whole.nc")
    assert whole.attrs["complete"] == 1
    assert whole["round"].values.tolist() == [0, 2, 4]
    part = open_results(frozen / "interrupted").sel(local_steps=1)
    for name in ("test_accuracy", "device_energy_j", "sim_time_s"):
        np.testing.assert_array_equal(part[name], whole[name].sel(local_steps=1))
    assert float(whole["test_accuracy"].isel(round=-1).mean()) == pytest.approx(0.1)


def test_models_load_and_score_as_recorded(frozen: Path) -> None:
    """`export` compares each model's accuracy with the one in the result."""
    from otafl.exporting.deployment import load_samples, open_models, read_recorded_accuracy
    from otafl.exporting.measure import compute_tie_share, make_run_fn, score_samples

    for steps in (1, 2):
        chosen = open_models(frozen / "whole.nc", {"local_steps": steps}, 1, "global", None)
        x, y = load_samples(chosen)
        scored = score_samples(make_run_fn(chosen.build_module()), x, y)
        room = compute_tie_share(scored.scores)
        assert room < 0.05  # one of 40 samples
        assert scored.accuracy == pytest.approx(read_recorded_accuracy(chosen), abs=room + 1e-9)
    head = trained.read(frozen / "whole.models" / "00000.pt")[1]
    assert head["otafl_models"] == 1
    module = otafl.load_model(frozen / "interrupted", local_steps=1)
    assert sum(one.numel() for one in module.parameters()) == 64 * 4 + 4 + 4 * 10 + 10


@pytest.mark.slow
def test_a_sweep_goes_on_from_record_and_checkpoint(
    frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the versions that wrote them, of which a checkpoint must be: only what is missing is
    computed."""
    folder = frozen / "interrupted"
    (made,) = json.loads(open_results(folder).attrs["origins"])
    for module in (checkpoints, stack_job):
        monkeypatch.setattr(module, "get_versions", lambda: made["versions"])
    scenario = load_scenario(folder / "scenario.yaml")
    told: list[str] = []
    calls: list[int] = []
    true = stack_job.Job

    def of_those_versions(*rest: Any, **more: Any) -> stack_job.Job:
        return true(*rest, **{**more, "versions": made["versions"]})

    monkeypatch.setattr(sweeping, "Job", of_those_versions)
    result = sweeping.sweep(
        scenario,
        folder,
        lambda done, total, note: calls.append(done),
        checkpoint_every=1,
        tell=told.append,
    )
    assert [text for text in told if "computed by" not in text] == []
    assert calls == [16]  # of 16 rounds
    close(result, open_results(frozen / "whole.nc"))
    assert len(list(trained.list_model_files(folder))) == 2


def test_records_are_plain_data(frozen: Path) -> None:
    (record,) = (frozen / "interrupted" / "running").glob("*.record.pt")
    kept = plain_data.load(record)
    assert set(kept) == {"identity", "record"}
    assert kept["record"]["rounds"] == [0, 2, 4]
